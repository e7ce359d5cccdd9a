"""The part of params.yaml that is read before the rest is worked out, and the keys that an installed package brings.

The part says what runs, and what it is drawn from. Keys of packages stand beside the settings of their methods.
"""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ConfigDict, Field

from palimpsest import extensions
from palimpsest.settings import Settings

if TYPE_CHECKING:
    from palimpsest.models.settings import Words
    from palimpsest.params.schema import Params
    from palimpsest.records.vouched import PublicSource

_Extended = TypeVar("_Extended", bound=Settings)
RUNS, RUN = "runs", "run"  # the section that a person writes, and the section worked out from it
_SECTIONS = frozenset({"models", "utility", "audit", RUNS, RUN})
FILE = "params.yaml"
RESOLVED = "params.resolved.yaml"  # every value that it stands for

NAMED = ("variants", "lms", "discriminators", "taught", "authors", "decoders", "zero_shot")
Section = Mapping[str, Any]
_NOTHING: Mapping[str, Any] = {}


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


def extended(section: str) -> Callable[[type[_Extended]], type[_Extended]]:
    """Decorate the schema of a section: it has the keys that packages add, too."""

    def extend(base: type[_Extended]) -> type[_Extended]:
        own = tuple(keys.sections[section] for keys in load_extensions() if section in keys.sections)
        if not own:
            return base
        names = [*base.model_fields, *(key for each in own for key in each.model_fields)]
        extensions.require_apart(f"a key of the section {section},", names)
        return _derive(base, own, {})

    return extend


def with_keys(kinds: Mapping[str, Any]) -> Callable[[type[_Extended]], type[_Extended]]:
    """Decorate the schema of a section: it has these keys, too, each with its type."""
    return lambda base: _derive(base, (), {key: kind for key, kind in kinds.items() if key not in base.model_fields})


def _derive(base: type[_Extended], own: tuple[type[Settings], ...], kinds: Mapping[str, Any]) -> type[_Extended]:
    body = {"__doc__": base.__doc__, "__module__": base.__module__, "__annotations__": dict(kinds)}
    made: Any = type(base)  # pydantic's class of classes
    found: type[_Extended] = made(base.__name__, (*own, base), body)
    return found


class NamedEntry(Settings):
    """A model or an author under a name of its own. Its settings stand beside what it is, without a level between."""

    model_config = ConfigDict(extra="allow")

    @property
    def written(self) -> dict[str, Any]:
        """Its keys as they stand in the file, but `from`."""
        return dict(self.model_extra or {})


class Sourced(NamedEntry):
    """An entry that is drawn from something else in the file, or stands behind it."""

    source: str | None = Field(default=None, alias="from")
    """What it is drawn from; for a discriminator its language model, for zero-shot texts their author."""


class Drawn(Sourced):
    """A variant: a row of the results."""

    source: str | tuple[str, ...] | None = Field(default=None, alias="from")  # type: ignore[assignment]
    """What it is drawn from; for `choose` a list."""
    method: str = Field(description="How the rows are made.")

    @property
    def written(self) -> dict[str, Any]:
        """Its keys as they stand in the file, but `from`."""
        return {"method": self.method, **super().written}


@extended(RUNS)
class Runs(Settings):
    """Which of what the file names runs, where that is not all of it, and the audits that only run when asked for."""

    evaluate: tuple[str, ...] | None = None
    """Variants that run, in the order of the pages; null: all."""
    audit: tuple[str, ...] | None = None
    """Variants whose rows are attacked; null: all that run. [] leaves these audits out."""
    fit: tuple[str, ...] = ()
    """Language models and discriminators that are fitted though nothing is drawn from them."""


class File(Settings):
    """params.yaml as a person writes it: what is read before the rest is worked out.

    All other sections are as `Params` has them, and are checked there.
    """

    model_config = ConfigDict(extra="allow")

    dataset: Section
    models: Section = _NOTHING
    variants: Mapping[str, Drawn]
    lms: Mapping[str, NamedEntry] = _NOTHING
    discriminators: Mapping[str, Sourced] = _NOTHING
    taught: Mapping[str, NamedEntry] = _NOTHING
    authors: Mapping[str, NamedEntry] = _NOTHING
    decoders: Mapping[str, NamedEntry] = _NOTHING
    zero_shot: Mapping[str, Sourced] = _NOTHING
    runs: Runs = Runs()

    @property
    def written(self) -> dict[str, Any]:
        """The file's settings as `Params` has them: without `runs`, and without what entries are drawn from."""
        named = {key: {name: entry.written for name, entry in getattr(self, key).items()} for key in NAMED}
        sections = {key: getattr(self, key) for key in ("dataset", "models") if key in self.model_fields_set}
        return copy.deepcopy({**(self.model_extra or {}), **sections, **named})
