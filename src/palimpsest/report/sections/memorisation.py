"""Members and secrets that the rows repeat."""

from collections.abc import Iterator

from palimpsest.audit.memorisation import Contrast, MemorisationAudit
from palimpsest.report.drawing import Rows, differences, listed
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest.report.unit import many

MEMORISATION = Metric("memorisation", MemorisationAudit.from_json, lambda params: params.run.audit)


def repeats(results: Results) -> Rows:
    """variant, what, value, low, high, p, members, never read: units that the rows repeat, members less holdout."""
    return [
        {"variant": variant, "what": what}
        | found.excess.to_json()
        | {"p": found.p, "members": found.exposed.count, "never read": found.control.count}
        for variant, audit in results.of(MEMORISATION).items()
        for what, found in _contrasts(audit)
    ]


def _contrasts(audit: MemorisationAudit) -> list[tuple[str, Contrast]]:
    found = [("near-duplicates", audit.near_duplicates.records)]
    found += [(kind, one.records) for kind, one in audit.personal.items() if _seen(one.records)]
    if audit.secrets:
        found += [("secrets, exact", audit.secrets.exact), ("secrets, near", audit.secrets.near)]
    return found


def _seen(contrast: Contrast) -> bool:
    return bool(contrast.exposed.count or contrast.control.count)


def _figures(page: Page) -> Iterator[Figure]:
    rows = repeats(page.results)
    if rows:
        yield Figure(
            section="Memorisation",
            title="Members and secrets that the rows repeat",
            caption=f"Share of members that are repeated, less the share of {many(page.summary.unit)} that were never "
            "read (of planted secrets: less secrets that were never planted). 95% intervals.",
            alt=listed("Excess", rows, "variant", "what", value="value"),
            chart=differences(rows, "what", "members less the control"),
            rows=rows,
            wide=True,
        )


SECTION = Section("memorisation", (MEMORISATION,), figures=_figures)
