"""The sample browser: one HTML file of the private zone in which a person looks through rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from palimpsest.records.personal import is_personal
from palimpsest.records.picked import pick_rows
from palimpsest.records.record import Record
from palimpsest.report.page import environment, policy

_EACH, _SPARE = 2, 4  # rows of a label on the card, and those looked at for them
_MOST = 12
_LONGEST = 400  # characters of a row on the card
# Control characters that would steer a terminal where a row is pasted -> a visible character in their place.
_STEERING = dict.fromkeys([*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
_DIGITS = 3  # of a cosine
WHY: Mapping[str, str] = {
    "length": "shorter than filters.min_words, or longer than filters.max_words",
    "personal_data": "has what looks like a way to reach or charge one person",
    "duplicates": "too much like a row that was kept before it, by filters.similarity",
    "perplexity": "found less likely by the public language model than filters.quantile of held-out public texts",
    "label": "its label found less likely than filters.threshold",
    "unreadable": "written down of an embedding, and too unlikely to the public language model to be read",
    "structure": "is no whole record of json_schema",
    "joint": "is no label with a text behind it",
    "empty": "no word was left of it",
}


def make_visible(text: str) -> str:
    """Replace control characters that would steer a terminal by visible ones; tabs and line ends stay.

    >>> make_visible("red \\x1b[31m") == "red \\N{REPLACEMENT CHARACTER}[31m"
    True
    """
    return text.translate(_STEERING)


def select_few(records: Sequence[Record], *, by_label: bool, seed: int) -> list[Record]:
    """Select some rows of a variant for the card: at most 2 of each label and 12 in all, long ones cut.

    None of them looks like a way to reach one person: a card may be shown before a release was checked for that.
    """
    each = _EACH if by_label else _MOST // 2
    usable = [row for row in pick_rows(records, _SPARE * each, by_label=by_label, seed=seed) if not is_personal(row)]
    chosen = pick_rows(usable, each, by_label=by_label, seed=seed)[:_MOST]
    return [
        replace(row, text=_cut(make_visible(row.text)), label=row.label and _cut(make_visible(row.label)))
        for row in chosen
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@dataclass(frozen=True)
class Near:
    """The private row that is nearest to a synthetic one, by the encoder."""

    pieces: tuple[str, ...]  # its text; every second piece is words that the synthetic row has too
    label: str
    cosine: float
    person: str | None  # the beginning of the person's keyed id; None where the unit of privacy is one record
    fields: str = ""  # the cells of its fields in words; "" where it has none


@dataclass(frozen=True)
class Written:
    """One synthetic row."""

    pieces: tuple[str, ...]  # its text; every second piece is words that the nearest private row has too
    label: str  # "" where it has none
    longest: int  # the longest run of words that it shares with any single row that was read, in words
    near: Near | None  # None where no row is near, as where the encoder has no vector of the text
    unread: float | None  # the cosine of the nearest row that nothing was fitted to; None where there is none
    fields: str = ""  # its fields in words; "" where it has none


@dataclass(frozen=True)
class Removal:
    """The rows that one filter removed; `rows` are some of `count`."""

    filter: str
    count: int
    rows: tuple[Record, ...]


@dataclass(frozen=True)
class Round:
    """The texts that a round began with and selected; where embeddings evolve, the public text nearest to each."""

    before: tuple[tuple[Record, int], ...]  # text and label, with how often it occurs
    after: tuple[tuple[Record, int], ...]


@dataclass(frozen=True)
class Browsed:
    """One variant, or a row at epsilon 0."""

    name: str
    role: str  # says in words whether its rows may leave
    total: int  # how many rows it has; `rows` are all or some of them
    rows: tuple[Written, ...]
    removed: tuple[Removal, ...]
    rounds: tuple[Round, ...]
    stands: bool  # whether the texts of its rounds stand for embeddings


@dataclass(frozen=True)
class Sizes:
    """Numbers of private rows, and the length of a marked run of words."""

    read: int  # rows that methods read
    unread: int  # rows that nothing was fitted to
    words: int  # in a run that is marked


def render_samples(asset: str, variants: Sequence[Browsed], sizes: Sizes, created: str) -> str:
    """Render the page as HTML text, with styles, script and rows inside and no outside address.

    Args:
        created: when the page was drawn.
    """
    pages = environment()
    script = Markup(pages.get_template("samples.js").render())
    return pages.get_template("samples.html.j2").render(
        asset=asset,
        created=created,
        sizes=sizes,
        variants=variants,
        data=[_variant_data(one) for one in variants],
        script=script,
        policy=policy(script),
    )


def _variant_data(one: Browsed) -> dict[str, Any]:
    return {
        "name": one.name,
        "role": one.role,
        "total": one.total,
        "stands": one.stands,
        "rows": [_row(row) for row in one.rows],
        "removed": [_removal(removal) for removal in one.removed],
        "rounds": [{"before": _texts(each.before), "after": _texts(each.after)} for each in one.rounds],
    }


def _row(row: Written) -> dict[str, Any]:
    near = row.near and {"text": _visible(row.near.pieces), "label": make_visible(row.near.label)} | {
        "cosine": round(row.near.cosine, _DIGITS), "person": row.near.person, "fields": row.near.fields
    }  # fmt: skip
    unread = None if row.unread is None else round(row.unread, _DIGITS)
    own = {"text": _visible(row.pieces), "label": make_visible(row.label), "longest": row.longest}
    return own | {"near": near, "unread": unread, "fields": make_visible(row.fields)}


def _removal(removal: Removal) -> dict[str, Any]:
    why = WHY.get(removal.filter, "removed by its method")
    return {"filter": removal.filter, "why": why, "count": removal.count} | {
        "rows": _texts([(row, 1) for row in removal.rows])
    }


def _texts(rows: Sequence[tuple[Record, int]]) -> list[dict[str, Any]]:
    return [
        {"text": make_visible(row.text), "label": make_visible(row.label or ""), "times": times} for row, times in rows
    ]


def _visible(pieces: Sequence[str]) -> list[str]:
    return [make_visible(piece) for piece in pieces]
