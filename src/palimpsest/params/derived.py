"""Defaults that follow from the public facts of the data set, and from whether a language model is named."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.methods.dp_lm.settings import TUNED, DpLmTrain
from palimpsest.params.extension import brought
from palimpsest.params.sections import LEAST_UNITS, Dataset, Utility
from palimpsest.records.vouched import EMBEDDED

ANY = "*"  # stands for a name of the file's own
BLIND = [NEXT_TOKEN]  # the evaluators of data without labels
_LARGEST_BATCH, _SMALLEST_BATCH = 10, 4  # powers of two
_LARGEST_AUDIT = 2000
_MOST_CONTEXTS, _FEWEST_CONTEXTS = 32, 8

Path = tuple[str, ...]


@dataclass(frozen=True)
class Derived:
    """A default that depends on the data set.

    Attributes:
        path: the key, with `ANY` for a name of the file's own.
        words: the default, for the reference.
        value: the default, of the data set.
        tag: the method or the kind that an entry under that name must be of, or what it must read; None: any. One with
            a tag stands before one without.
        embedded: whether it is only for the embedded language model, or only for a named one; for the other the
            default is null. None: for both.
    """

    path: Path
    words: str
    value: Callable[[Dataset], Any]
    tag: str | None = None
    embedded: bool | None = None

    def of(self, data: Dataset, lm: str) -> Any:
        """The default for these data and this language model."""
        return self.value(data) if self.embedded in (None, lm == EMBEDDED) else None


def units(data: Dataset) -> int:
    """The declared number of units of privacy."""
    return data.n_public if data.unit.persons is None else data.unit.persons


def _batch(data: Dataset) -> int:
    """Return the default batch: a power of two near a twelfth of the units, because large batches suit DP."""
    power = (units(data) // 12).bit_length() - 1
    return int(min(units(data), 2 ** min(_LARGEST_BATCH, max(_SMALLEST_BATCH, power))))


def _audited(data: Dataset) -> int:
    return min(max(units(data) // 5, LEAST_UNITS), _LARGEST_AUDIT)


def _contexts(data: Dataset) -> int:
    return min(max(units(data) // 64, _FEWEST_CONTEXTS), _MOST_CONTEXTS)


Default = tuple[str, Callable[[Dataset], Any]]  # the words, the value


def _labelled(there: Any, other: Any) -> Default:
    return f"{_cell(there)} where there are labels, else {_cell(other)}", lambda data: there if data.labels else other


def for_json(own: Any, other: Any) -> Default:
    """Return one default for records of JSON and another for texts."""
    return f"{_cell(other)}; task json: {_cell(own)}", lambda data: own if data.task == "json" else other


def chain_without(*without: str) -> Default:
    """Return all filters of texts; for tasks whose records are no texts, only those that a release would fail by."""
    words = f"{_cell(_CHAIN)}; task {' or '.join(without)}: {_cell(_REFUSED)}"
    return words, lambda data: list(_REFUSED if data.task in without else _CHAIN)


def _cell(value: Any) -> str:
    return f"`{json.dumps(value)}`"


_CHAIN = ["length", "personal_data", "duplicates"]
_REFUSED = ["personal_data"]
_WITH_LABELS: Default = (
    "the section's own defaults where there are labels, else `null`",
    lambda data: {} if data.labels else None,
)
_TITLE: Default = ('`"Synthetic rows of "` and `dataset.asset`', lambda data: f"Synthetic rows of {data.asset}")
RECORD = 200  # tokens that hold a whole record of JSON
_PREDICT: Mapping[Path, Default] = {
    ("batch_size",): ("a 64th of the units of privacy, from 8 to 32", _contexts),
    ("tokens",): for_json(300, 100),
    ("max_tokens",): for_json(RECORD, 40),
    ("typical_tokens",): for_json(150, 20),
    ("keep_unfinished",): for_json(False, True),
    ("class_means",): _WITH_LABELS,
    ("prompt", "text_tokens"): for_json(RECORD, 40),
    ("filters", "chain"): chain_without("json", "span"),
}
_AS_LMS = ("epochs", "learning_rate", "warmup", "clipping_norm", "micro_batch")


def _always(value: Any) -> Callable[[Dataset], Any]:
    return lambda _: value


def _tuned() -> Iterator[Derived]:
    """Yield the defaults of a discriminator that is a language model of its own: it trains as one."""
    for key in _AS_LMS:
        usual = DpLmTrain.model_fields[key].default
        yield Derived(("discriminators", ANY, "train", key), _cell(usual), _always(usual), TUNED)
    yield Derived(("discriminators", ANY, "train", "batch"), _TWELFTH, _batch, TUNED)


_TWELFTH = "about a twelfth of the units of privacy: a power of two from 16 to 1,024"
_WARM_UP = "the section's own defaults where `models.lm` is embedded, else `null`"
_ALONE = "the section's own defaults where `models.lm` names one, else `null`"
_RATE = "`0.002` where `models.lm` is embedded, else `null`"
_ALL = (
    Derived(("models", "prompts"), _WARM_UP, lambda _: {}, embedded=True),
    Derived(("models", "prompts", "learning_rate"), _RATE, lambda _: 0.002, embedded=True),
    Derived(("taught", ANY, "learning_rate"), _RATE, lambda _: 0.002, embedded=True),
    Derived(("models", "embedded_lm", "context"), *for_json(512, 128)),
    Derived(("taught", ANY, "max_tokens"), *for_json(RECORD, 40)),
    Derived(("authors", ANY, "start"), *_labelled("prompt", "corpus"), "base"),
    Derived(("authors", ANY, "max_tokens"), *for_json(RECORD, 64), "base"),
    Derived(("lms", ANY, "train", "batch"), _TWELFTH, _batch),
    Derived(("lms", ANY, "train", "max_tokens"), *for_json(RECORD, 64)),
    Derived(("lms", ANY, "train", "discriminator_weight"), *_labelled(1.0, 0.0)),
    *_tuned(),
    Derived(("discriminators", ANY, "train", "batch"), "the number of units of privacy", units),
    Derived(("variants", ANY, "variant"), *_labelled("multitask", "plain"), "dp_lm"),
    Derived(("variants", ANY, "generate", "max_tokens"), *for_json(RECORD, 64), "dp_lm"),
    *(Derived(("variants", ANY, "predict", *path), *default) for path, default in _PREDICT.items()),
    Derived(("variants", ANY, "evolve", "class_means"), *_WITH_LABELS),
    Derived(("variants", ANY, "evolve", "filters", "chain"), *chain_without("json")),
    Derived(("variants", ANY, "embed", "class_means"), *_WITH_LABELS),
    Derived(("public_lm",), _ALONE, lambda _: {}, embedded=False),
    Derived(("public_lm", "max_tokens"), *for_json(RECORD, 64)),
    Derived(("utility", "evaluators"), *_labelled([*Utility().evaluators], BLIND)),
    Derived(("audit", "size"), "a fifth of the units of privacy, from 20 to 2,000", _audited),
    Derived(("release", "title"), *_TITLE),
)
_BROUGHT = (item for keys in brought() for item in keys.defaults())
DERIVED: Mapping[tuple[Path, str | None], Derived] = {(item.path, item.tag): item for item in (*_ALL, *_BROUGHT)}


def derived(path: Path, tag: str | None = None) -> Derived | None:
    """The default of a key that depends on the data set, if it does; `tag` is the method or kind of its entry."""
    return DERIVED.get((path, tag)) or DERIVED.get((path, None))
