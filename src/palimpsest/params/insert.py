"""Entries put into the text of a params.yaml, whose other lines, comments and anchors stay as they are."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from palimpsest.params.text import to_yaml

Entries = Mapping[str, Any]


def inserted(text: str, sections: Mapping[str, Entries]) -> str:
    """The text with further entries at the end of its sections; a section that is not there comes last.

    A section on one line in braces cannot take any, so the caller has to read the text back and check.
    """
    lines = text.splitlines()
    for section, entries in sections.items():
        if entries:
            lines = _into(lines, section, entries)
    return "\n".join(lines) + "\n"


def _into(lines: Sequence[str], section: str, entries: Entries) -> list[str]:
    head = next((at for at, line in enumerate(lines) if re.fullmatch(rf"{section}:\s*(#.*)?", line)), None)
    written = to_yaml({section: entries}).splitlines()
    if head is None:
        return [*lines, "", *written]
    own = _content(lines, head)
    indent = len(lines[own[0]]) - len(lines[own[0]].lstrip()) if own else 2
    end = own[-1] + 1 if own else head + 1
    return [*lines[:end], *(" " * indent + line[2:] for line in written[1:]), *lines[end:]]


def _content(lines: Sequence[str], head: int) -> list[int]:
    """Return the numbers of a section's lines that are neither blank nor a comment."""
    found = []
    for at in range(head + 1, len(lines)):
        line = lines[at]
        if line.strip() and not line.lstrip().startswith("#"):
            if not line[0].isspace():
                break
            found.append(at)
    return found
