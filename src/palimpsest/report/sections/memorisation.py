"""Members and secrets that the rows repeat."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.audit.memorisation import Contrast, MemorisationAudit, Repeats
from palimpsest.report.drawing import Rows, describe_values, differences
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Section, Table, word_column
from palimpsest.report.unit import plural_of

_MEMORISATION = Metric("memorisation", MemorisationAudit.from_json, lambda params: params.run.audit)
_COPIES = "near-duplicates"


def repeats(results: Results) -> Rows:
    """Return variant, what, value, low, high, p, members, never read: repeated units, members less holdout."""
    return [
        {"variant": variant, "what": what}
        | contrast.excess.to_json()
        | {"p": contrast.p, "members": contrast.exposed.count, "never read": contrast.control.count}
        for variant, audit in results.of(_MEMORISATION).items()
        for what, contrast in _contrasts(audit).items()
    ]


def _contrasts(audit: MemorisationAudit) -> dict[str, Contrast]:
    found = {what: one.records for what, one in _repeated(audit).items() if one.judges or _is_found(one.records)}
    contrasts = {what: one for what, one in found.items() if what == _COPIES or _is_found(one)}
    if audit.secrets is not None:
        contrasts |= {"secrets, exact": audit.secrets.exact, "secrets, near": audit.secrets.near}
    return contrasts


def _repeated(audit: MemorisationAudit) -> dict[str, Repeats]:
    return {_COPIES: audit.near_duplicates, **audit.personal}


def _is_found(contrast: Contrast) -> bool:
    return bool(contrast.exposed.count or contrast.control.count)


def unjudged(results: Results) -> Rows:
    """Return variant, what, found, planted: kinds of contents that are not found where they were planted."""
    return [
        {"variant": variant, "what": what, "found": one.planted.count, "planted": one.planted.n}
        for variant, audit in results.of(_MEMORISATION).items()
        for what, one in _repeated(audit).items()
        if not one.judges
    ]


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Repetitions that cannot be judged",
        "Copies without their last words, and invented values put into such texts, were planted to try the search. "
        "Where it misses half of them, that it found none in the rows says nothing.",
        (
            word_column("Variant", "variant"),
            word_column("What", "what"),
            Column("", lambda row: Cell("cannot judge", (f"{row['found']} of {row['planted']} planted were found",))),
        ),
        unjudged(page.results),
    )


def _figures(page: Page) -> Iterator[Figure]:
    rows = repeats(page.results)
    return Figure.of(
        rows,
        lambda rows: differences(rows, "what", "members less the control"),
        section="Memorisation",
        title="Members and secrets that the rows repeat",
        caption=f"Share of members that are repeated, less the share of {plural_of(page.summary.unit)} that were never "
        "read (of planted secrets: less secrets that were never planted). 95% intervals.",
        alt=describe_values("Excess", rows, "variant", "what", value="value"),
        wide=True,
    )


SECTION = Section("memorisation", (_MEMORISATION,), tables=_tables, figures=_figures, heading="Memorisation")
