"""Keys of params.yaml that an installed package brings, beside the settings of its methods."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from palimpsest import extensions
from palimpsest.settings import Settings

if TYPE_CHECKING:
    from palimpsest.models.words import Words
    from palimpsest.params.schema import Params
    from palimpsest.records.vouched import PublicSource

Section = TypeVar("Section", bound=Settings)
RUNS, RUN = "runs", "run"  # the section that a person writes, and the section worked out from it
_SECTIONS = frozenset({"models", "utility", "audit", RUNS, RUN})


@dataclass(frozen=True)
class Keys:
    """The keys that a package adds to params.yaml.

    Attributes:
        sections: section -> a class with the keys that it adds there, each with a default, so that a file without them
            stays valid. `models`, `utility` and `audit` can be added to; `runs`, what a person asks for by name; and
            `run`, what each stage is repeated for. The section is then an instance of that class, too.
            Whoever starts a run on a team's server may set keys of `utility` and `audit`, so none there may name a
            place that something is sent to.
        run: takes `runs`, and `run` as far as it is worked out; returns the package's entries of `run`.
        fits: takes `runs`; returns the names of models that are fitted for it though nothing is drawn from them.
        words: takes the words of prompts; returns (section, key within it) -> its value unless the file says another.
        problems: yields what does not fit together.
        warnings: yields what is allowed but should be looked at, for `plan` and the report.
        reads_base: whether any of its parts that run reads the public language model.
        models: key that a stage reads -> the key within it that names a public model.
        sources: returns these models, where they are named.
    """

    sections: Mapping[str, type[Settings]] = field(default_factory=dict)
    run: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = lambda _runs, _run: {}
    fits: Callable[[Any], Iterable[str]] = lambda _: ()
    words: Callable[["Words"], Mapping[tuple[str, str], Mapping[str, Any]]] = lambda _: {}
    problems: Callable[["Params"], Iterable[str]] = lambda _: ()
    warnings: Callable[["Params"], Iterable[str]] = lambda _: ()
    reads_base: Callable[["Params"], bool] = lambda _: False
    models: Mapping[str, str] = field(default_factory=dict)
    sources: Callable[["Params"], Iterable["PublicSource"]] = lambda _: ()

    def __post_init__(self) -> None:
        if unknown := sorted(self.sections.keys() - _SECTIONS):
            raise ValueError(f"packages add no keys to {unknown[0]!r}, but to {', '.join(sorted(_SECTIONS))}")


@functools.cache
def load_extensions() -> tuple[Keys, ...]:
    """Return what all installed packages add."""
    return tuple(extensions.load_group(extensions.SETTINGS).values())


def keys_of(section: str) -> Iterator[str]:
    """The keys that packages add to a section."""
    for keys in load_extensions():
        yield from keys.sections[section].model_fields if section in keys.sections else ()


def model_keys() -> dict[str, str]:
    """Return, for all packages, key that a stage reads -> the key within it that names a public model."""
    return {key: within for keys in load_extensions() for key, within in keys.models.items()}


def extended(section: str) -> Callable[[type[Section]], type[Section]]:
    """Decorate the schema of a section: it has the keys that packages add, too."""

    def extend(base: type[Section]) -> type[Section]:
        own = tuple(keys.sections[section] for keys in load_extensions() if section in keys.sections)
        if not own:
            return base
        names = [*base.model_fields, *(key for each in own for key in each.model_fields)]
        extensions.require_apart(f"a key of the section {section},", names)
        return _derive(base, own, {})

    return extend


def with_keys(kinds: Mapping[str, Any]) -> Callable[[type[Section]], type[Section]]:
    """Decorate the schema of a section: it has these keys, too, each with its type."""
    return lambda base: _derive(base, (), {key: kind for key, kind in kinds.items() if key not in base.model_fields})


def _derive(base: type[Section], own: tuple[type[Settings], ...], kinds: Mapping[str, Any]) -> type[Section]:
    body = {"__doc__": base.__doc__, "__module__": base.__module__, "__annotations__": dict(kinds)}
    made: Any = type(base)  # pydantic's class of classes
    found: type[Section] = made(base.__name__, (*own, base), body)
    return found
