"""Records of several texts, or of the turns of a conversation: joined to one text by a public form, and split again.

`dataset.text` says the form. `title; body` names two columns, whose texts are joined as `a title || a body`.
`turns(messages)` names a column of turns, which are joined as `user || a question || assistant || an answer`. Where a
text has a word of two or more bars itself, that word gets one bar more, and loses it again when the record is split.

Guarantee: joining is a function of one record and of public settings alone (1-stable). Splitting is post-processing.
"""

import re
from collections.abc import Sequence
from typing import Any

from palimpsest.records.record import Record
from palimpsest.records.schema import names as split_names
from palimpsest.records.structured import WHOLE_ROW, parse_value

SEPARATOR = "||"
ROLES = ("system", "developer", "user", "assistant", "tool")  # public: of no other role is a turn read or released
_MARK = re.compile(r"(?<!\S)\|\|(?!\S)")
_BARS = re.compile(r"(?<!\S)(\|{2,})(?!\S)")
_ESCAPED = re.compile(r"(?<!\S)\|(\|{2,})(?!\S)")
_TURNS = re.compile(r"turns\((.+)\)")


def is_turns(text: str) -> bool:
    """Return whether the setting names a column of turns."""
    return _TURNS.fullmatch(text) is not None


def names(text: str) -> tuple[str, ...]:
    """Return the columns that the setting `dataset.text` names.

    >>> names("title; body"), names("turns(messages)"), names("*")
    (('title', 'body'), ('messages',), ('*',))
    """
    turns = _TURNS.fullmatch(text)
    return (turns[1],) if turns else (WHOLE_ROW,) if text == WHOLE_ROW else split_names(text)


def join(parts: Sequence[str]) -> str:
    """Join the texts of a record; without the space around each, and empty where all are.

    >>> join(["A || B", " Dear all, "])
    'A ||| B || Dear all,'
    """
    stripped = [_BARS.sub(r"\1|", part.strip()) for part in parts]
    return f" {SEPARATOR} ".join(stripped).strip() if any(stripped) else ""


def split(text: str) -> list[str]:
    """Return the texts that `join` joined.

    >>> split("A ||| B || Dear all,")
    ['A || B', 'Dear all,']
    """
    return [_ESCAPED.sub(r"\1", part.strip()) for part in _MARK.split(text)]


def join_turns(value: Any) -> str:
    """Join the turns of a conversation: a list of objects with `role` and `content`, or its JSON text.

    Raises:
        ValueError: the value is no such list; neither the error nor what is chained to it holds the value.

    >>> join_turns([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    'user || Hi || assistant || Hello'
    """
    turns = parse_value(value) if isinstance(value, str) else value
    if not isinstance(turns, list) or not all(map(_is_turn, turns)):
        raise ValueError("not a list of turns")
    return join([part for turn in turns for part in (turn["role"], turn.get("content") or "")])


def _is_turn(turn: Any) -> bool:
    told = {key: value for key, value in turn.items() if value is not None} if isinstance(turn, dict) else {}
    return told.get("role") in ROLES and isinstance(told.get("content", ""), str) and set(told) <= {"role", "content"}


def split_turns(text: str) -> list[dict[str, str]] | None:
    """Return the turns that `join_turns` joined; None where the text is none, or a turn has no public role."""
    parts = split(text)
    if len(parts) % 2 or not set(parts[::2]) <= set(ROLES):
        return None
    return [{"role": role, "content": content} for role, content in zip(parts[::2], parts[1::2], strict=True)]


def comes_apart(text: str, columns: str) -> bool:
    """Return whether a record's text has the form that `columns`, the setting `dataset.text`, says."""
    if is_turns(columns):
        return split_turns(text) is not None
    found = split(text)
    return len(names(columns)) == 1 or (len(found) == len(names(columns)) and any(found))


def cells_of(text: str, columns: str) -> tuple[Any, ...]:
    """Return a cell for each column of text. What does not come apart stands whole in the first, and marks itself.

    >>> cells_of("Late || Where is it?", "title; body"), cells_of("Late", "title; body")
    (('Late', 'Where is it?'), ('Late', None))
    """
    if is_turns(columns):
        return (split_turns(text) or [{"role": None, "content": text}],)
    many = len(names(columns))
    if many == 1:
        return (text,)
    return tuple(split(text)) if comes_apart(text, columns) else (text, *(None,) * (many - 1))


def text_of(cells: Sequence[Any], columns: str) -> str:
    """Return the text whose cells `cells_of` gave, but for white space around its parts."""
    if is_turns(columns):
        (turns,) = cells
        return str(turns[0]["content"]) if turns[0]["role"] is None else join_turns(turns)
    return cells[0] if None in cells[1:] or len(cells) == 1 else join(cells)


def keep_whole(rows: Sequence[Record], columns: str) -> tuple[list[Record], dict[str, int]]:
    """Return the rows whose text comes apart, and how many do not: a public filter of rows that were paid for.

    Guarantee: post-processing; it looks at one row at a time and at public settings.
    """
    kept = [row for row in rows if comes_apart(row.text, columns)]
    return kept, {"parts": len(rows) - len(kept)} if len(kept) < len(rows) else {}
