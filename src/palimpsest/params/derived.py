"""Defaults that follow from the public facts of the data set: sizes, and whether there are labels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.params.sections import Dataset

ANY = "*"  # stands for a name of the file's own
_LARGEST_BATCH, _SMALLEST_BATCH = 10, 4  # powers of two
_LARGEST_AUDIT, _SMALLEST_AUDIT = 2000, 20
_MOST_CONTEXTS, _FEWEST_CONTEXTS = 32, 8

Path = tuple[str, ...]


@dataclass(frozen=True)
class Derived:
    """A default that depends on the data set.

    Attributes:
        path: the key, with `ANY` for a name of the file's own.
        words: the default, for the reference.
        value: the default, of the data set.
        tag: the method or the kind that an entry under that name must be of; None: any.
    """

    path: Path
    words: str
    value: Callable[[Dataset], Any]
    tag: str | None = None


def units(data: Dataset) -> int:
    """The declared number of units of privacy."""
    return data.n_public if data.unit.persons is None else data.unit.persons


def _batch(data: Dataset) -> int:
    """Large batches suit DP."""
    power = (units(data) // 12).bit_length() - 1
    return int(min(units(data), 2 ** min(_LARGEST_BATCH, max(_SMALLEST_BATCH, power))))


def _audited(data: Dataset) -> int:
    return min(max(units(data) // 5, _SMALLEST_AUDIT), _LARGEST_AUDIT)


def _contexts(data: Dataset) -> int:
    return min(max(units(data) // 64, _FEWEST_CONTEXTS), _MOST_CONTEXTS)


def _labelled(there: Any, else_: Any) -> Callable[[Dataset], Any]:
    return lambda data: there if data.labels else else_


def _long(long: Any, else_: Any) -> Callable[[Dataset], Any]:
    return lambda data: long if data.task == "json" else else_


_CHAIN = ("length", "personal_data", "duplicates")
_WITH_LABELS = "the section's own defaults where there are labels, else `null`"


def _entries() -> Iterator[Derived]:
    yield Derived(("models", "embedded_lm", "context"), "`128`; task json: `512`", _long(512, 128))
    yield Derived(("taught", ANY, "max_tokens"), "`40`; task json: `200`", _long(200, 40))
    yield Derived(
        ("authors", ANY, "start"), '`"prompt"` where there are labels, else `"corpus"`', _labelled("prompt", "corpus"),
        "base",
    )  # fmt: skip
    yield Derived(("authors", ANY, "max_tokens"), "`64`; task json: `200`", _long(200, 64), "base")
    words = "about a twelfth of the units of privacy: a power of two from 16 to 1,024"
    yield Derived(("lms", ANY, "train", "batch"), words, _batch)
    words = "`1.0` where there are labels, else `0.0`"
    yield Derived(("lms", ANY, "train", "discriminator_weight"), words, _labelled(1.0, 0.0))
    yield Derived(("discriminators", ANY, "train", "batch"), "the number of units of privacy", units)
    words = '`"multitask"` where there are labels, else `"plain"`'
    yield Derived(("variants", ANY, "variant"), words, _labelled("multitask", "plain"), "dp_lm")
    yield from _predict(("variants", ANY, "predict"))
    yield Derived(("variants", ANY, "fewshot", "filters", "chain"), *_chain("json", "span"))
    yield Derived(("variants", ANY, "evolve", "class_means"), _WITH_LABELS, _labelled({}, None))
    yield Derived(("variants", ANY, "evolve", "filters", "chain"), *_chain("json"))
    yield Derived(("variants", ANY, "embed", "class_means"), _WITH_LABELS, _labelled({}, None))
    words = "a fifth of the units of privacy, from 20 to 2,000"
    yield Derived(("audit", "size"), words, _audited)
    yield Derived(
        ("release", "title"),
        '`"Synthetic rows of "` and `dataset.asset`',
        lambda data: f"Synthetic rows of {data.asset}",
    )


def _predict(at: Path) -> Iterator[Derived]:
    words = "a 64th of the units of privacy, from 8 to 32"
    yield Derived((*at, "batch_size"), words, _contexts)
    yield Derived((*at, "tokens"), "`100`; task json: `300`", _long(300, 100))
    yield Derived((*at, "max_tokens"), "`40`; task json: `200`", _long(200, 40))
    yield Derived((*at, "typical_tokens"), "`20`; task json: `150`", _long(150, 20))
    yield Derived((*at, "keep_unfinished"), "`true`; task json: `false`", _long(False, True))
    yield Derived((*at, "class_means"), _WITH_LABELS, _labelled({}, None))
    yield Derived((*at, "prompt", "text_tokens"), "`40`; task json: `200`", _long(200, 40))
    yield Derived((*at, "filters", "chain"), *_chain("json", "span"))


def _chain(*without: str) -> tuple[str, Callable[[Dataset], Any]]:
    words = f"`{list(_CHAIN)}`".replace("'", '"') + f"; task {' or '.join(without)}: `[]`"
    return words, lambda data: [] if data.task in without else list(_CHAIN)


DERIVED: Mapping[tuple[Path, str | None], Derived] = {(item.path, item.tag): item for item in _entries()}


def derived(path: Path, tag: str | None = None) -> Derived | None:
    """The default of a key that depends on the data set, if it does; `tag` is the method or kind of its entry."""
    return DERIVED.get((path, tag)) or DERIVED.get((path, None))
