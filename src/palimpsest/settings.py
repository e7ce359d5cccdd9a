"""The base class of every section of params.yaml."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A section of settings: unknown keys are errors, defaults are checked too, values never change after loading.

    A key is described by its field, or by the text under it (`descriptions`).

    Attributes:
        means: keys that change nothing of what is made, as how often an endpoint may be asked: a stopped run goes on
            under its charge with others of these.
    """

    means: ClassVar[frozenset[str]] = frozenset()

    # Pydantic could read the texts itself, but does so whenever a section is defined: most of a command's start.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)


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
