"""The base class of every section of params.yaml, and defaults that follow from public facts of the data set."""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

RECORD = 200  # tokens that hold a whole record of JSON
_SHORT, LONGEST = 64, 400  # tokens of a text that are kept by default, and at most
_LARGEST_BATCH, _SMALLEST_BATCH = 10, 4  # powers of two
_REFUSED: tuple[Literal["personal_data"]] = ("personal_data",)  # by a release
_NO_TEXTS = ("json", "span")  # tasks whose records are no texts


@dataclass(frozen=True)
class Stated:
    """Statements of a person that defaults follow from: public facts of the data set, and the language model."""

    task: str  # classify, span, text or json
    asset: str  # the data set's name in the ledger
    labelled: bool  # whether there is a public list of labels
    units: int  # the declared number of records, or of persons where these are the unit
    text_tokens: int | None  # tokens of a long text, about, where the data set says so
    embedded: bool  # whether the language model is the embedded one; else one is named


@dataclass(frozen=True)
class Follows:
    """Marks a key whose default follows from what a person states: `batch: Annotated[int, Follows(...)]`."""

    words: str  # the default, for the reference page
    # what is stated, and the section as far as it is written -> the default
    of: Callable[[Stated, Mapping[str, Any]], Any]


class Settings(BaseModel):
    """A section of settings: unknown keys are errors, defaults are checked too, values never change after loading.

    A key is described by its field, or by the text under it (`descriptions`).
    """

    # keys that change nothing of what is made, as how often an endpoint may be asked: a stopped run goes on under its
    # charge with others of these
    means: ClassVar[frozenset[str]] = frozenset()

    # Pydantic could read the texts itself, but does so whenever a section is defined: most of a command's start.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, written: Any, info: ValidationInfo) -> Any:
        """Fill in the defaults that follow from what is stated, where the context states it: the file is read."""
        if not isinstance(info.context, Stated) or not isinstance(written, Mapping):
            return written
        filled = {name: rule.of(info.context, written) for name, rule in _rules(cls).items() if name not in written}
        return filled | {**written}

    def plain_items(self) -> Iterator[tuple[str, Any]]:
        """Yield each key and its value."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)


def rule_of(field: FieldInfo) -> Follows | None:
    """Return what the default of a key follows from, if it does."""
    return next((mark for mark in field.metadata if isinstance(mark, Follows)), None)


_EMPTY = Follows("", lambda _stated, _written: {})


@cache
def _rules(section: type[Settings]) -> Mapping[str, Follows]:
    """Return the rule of each key that has one; a section that holds such keys is there though it is not written."""
    found = {name: rule_of(field) for name, field in section.model_fields.items()}
    for name, field in section.model_fields.items():
        kind = field.annotation
        if found[name] is None and isinstance(kind, type) and issubclass(kind, Settings) and _rules(kind):
            found[name] = _EMPTY
    return {name: rule for name, rule in found.items() if rule}


@cache
def descriptions(section: type[BaseModel]) -> Mapping[str, str]:
    """Return key -> description for a section: that of its field, else the text under it, else nothing."""
    under = {name: text for base in reversed(section.__mro__) for name, text in _texts(base)}
    return {name: field.description or under.get(name, "") for name, field in section.model_fields.items()}


def _texts(base: type) -> Iterator[tuple[str, str]]:
    """Each key that a class defines, with the text that stands under it."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0] if issubclass(base, Settings) else None
    except (OSError, TypeError):  # made by a call: it defines none
        return
    lines = body.body if isinstance(body, ast.ClassDef) else []
    for line, below in pairwise(lines):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(text, ast.Constant):
            yield line.target.id, inspect.cleandoc(str(text.value))


def text_tokens(stated: Stated) -> int:
    """Return the longest text in tokens: as long as usual, or as the data set says."""
    return RECORD if stated.task == "json" else min(max(_SHORT, stated.text_tokens or 0), LONGEST)


def near_a_twelfth(stated: Stated) -> int:
    """Return the default batch: a power of two near a twelfth of the units, because large batches suit DP."""
    power = (stated.units // 12).bit_length() - 1
    return int(min(stated.units, 2 ** min(_LARGEST_BATCH, max(_SMALLEST_BATCH, power))))


def by_labels(there: Any, other: Any) -> Follows:
    """Return one default for data with labels and another for data without."""
    words = f"{shown(there)} where there are labels, else {shown(other)}"
    return Follows(words, lambda stated, _: there if stated.labelled else other)


def by_json(own: Any, other: Any) -> Follows:
    """Return one default for records of JSON and another for texts."""
    words = f"{shown(other)}; task json: {shown(own)}"
    return Follows(words, lambda stated, _: own if stated.task == "json" else other)


def by_model(embedded: Any, named: Any, words: str) -> Follows:
    """Return one default for the embedded language model and another for a named one."""
    return Follows(words, lambda stated, _: embedded if stated.embedded else named)


def shown(value: Any) -> str:
    """Return a default as the reference page shows it."""
    return f"`{json.dumps(value)}`"


TEXT = Follows(
    f"{shown(_SHORT)}, or `dataset.text_tokens` up to 400; task json: {shown(RECORD)}",
    lambda stated, _: text_tokens(stated),
)
TRAINED_RATE = by_model(0.002, None, "`0.002` where `models.lm` is embedded, else `null`")
CHAIN: tuple[Literal["length", "personal_data", "duplicates"], ...] = ("length", "personal_data", "duplicates")
TEXT_CHAIN = Follows(
    f"{shown(CHAIN)}; task {' or '.join(_NO_TEXTS)}: {shown(_REFUSED)}",
    lambda stated, _: _REFUSED if stated.task in _NO_TEXTS else CHAIN,
)
WITH_LABELS = Follows(
    "the section's own defaults where there are labels, else `null`",
    lambda stated, _: {} if stated.labelled else None,
)
