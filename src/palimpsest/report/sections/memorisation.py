"""Members and secrets that the rows repeat."""

from collections.abc import Iterator

from palimpsest.audit.memorisation import Contrast, MemorisationAudit
from palimpsest.report.drawing import Rows, describe_values, differences
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest.report.unit import plural_of

_MEMORISATION = Metric("memorisation", MemorisationAudit.from_json, lambda params: params.run.audit)


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
    personal = {kind: one.records for kind, one in audit.personal.items()}
    seen = {kind: one for kind, one in personal.items() if one.exposed.count or one.control.count}
    contrasts = {"near-duplicates": audit.near_duplicates.records, **seen}
    if audit.secrets is not None:
        contrasts |= {"secrets, exact": audit.secrets.exact, "secrets, near": audit.secrets.near}
    return contrasts


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


SECTION = Section("memorisation", (_MEMORISATION,), figures=_figures, heading="Memorisation")
