"""Settings as YAML: the same values are the same text, on every machine and with every version of a YAML library."""

import json
import math
import re
from collections.abc import Iterator, Mapping
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
    return _printable(json.dumps(value, ensure_ascii=False))


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


def _printable(text: str) -> str:
    """Escape unprintable characters, which makes JSON valid YAML."""
    return "".join(sign if sign.isprintable() or ord(sign) > 0xFFFF else f"\\u{ord(sign):04x}" for sign in text)
