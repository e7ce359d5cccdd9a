"""Settings as YAML, and entries put into the text of a params.yaml whose other lines stay as they are."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TAKEN = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # by YAML 1.1 or 1.2


def to_yaml(body: Mapping[str, Any], *, folded: bool = True) -> str:
    """A mapping as YAML.

    Args:
        body: of mappings, lists, texts, numbers, true, false and null.
        folded: write what fits a line on one; else every value has a line of its own.
    """
    return "".join(f"{line}\n" for line in _lines(body, 0, folded))


def scalar(value: Any) -> str:
    """A text, a number, true, false or null as YAML, which reads back as the same value."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    return _escape_unprintable(json.dumps(value, ensure_ascii=False))


def flow(value: Any) -> str:
    """Return any value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(key))}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    return scalar(value)


def _lines(body: Mapping[str, Any], depth: int, folded: bool) -> Iterator[str]:
    indent = "  " * depth
    for key, value in body.items():
        head = f"{indent}{scalar(str(key))}:"
        line = f"{head} {flow(value)}"
        fits = folded and depth > 0 and len(line) <= WIDTH
        if isinstance(value, Mapping) and value and not fits:
            yield head
            yield from _lines(value, depth + 1, folded)
        else:
            yield line


def _number(value: float) -> str:
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits, sign, power = repr(value).partition("e")
    return f"{digits if '.' in digits else digits + '.0'}{sign}{power}"


def _escape_unprintable(text: str) -> str:
    """Escape unprintable characters, which makes JSON valid YAML."""
    return "".join(sign if sign.isprintable() or ord(sign) > 0xFFFF else f"\\u{ord(sign):04x}" for sign in text)


Entries = Mapping[str, Any]


def insert_entries(text: str, sections: Mapping[str, Entries]) -> str:
    """The text with further entries at the end of its sections; a section that is not there comes last.

    A section on one line in braces cannot take any, so the caller has to read the text back and check.
    """
    lines = text.splitlines()
    for section, entries in sections.items():
        if entries:
            lines = _insert_section(lines, section, entries)
    return "\n".join(lines) + "\n"


def _insert_section(lines: Sequence[str], section: str, entries: Entries) -> list[str]:
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
