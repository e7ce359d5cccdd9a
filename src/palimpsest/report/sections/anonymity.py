"""Evidence on singling out, linkability and inference."""

from collections.abc import Iterator

from palimpsest.audit.anonymity import AnonymityAudit
from palimpsest.report.drawing import Rows, differences, fields, listed
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest.report.unit import many

ANONYMITY = Metric("anonymity", AnonymityAudit.from_json, lambda params: params.run.audit)


def risks(results: Results) -> Rows:
    """variant, criterion, attack, risk, low, high, main, control, baseline, cap, informed: one row per attack."""
    return [
        {"variant": variant, "criterion": one.criterion, "attack": f"{one.criterion}: {attack}"}
        | {"risk": one.risk.value, "low": one.risk.low, "high": one.risk.high}
        | {"main": one.main.rate, "control": one.control.rate}
        | fields(one, "baseline", "cap", "informed")
        for variant, audit in results.of(ANONYMITY).items()
        for attack, one in audit.attacks.items()
    ]


def _figures(page: Page) -> Iterator[Figure]:
    rows = risks(page.results)
    return Figure.of(
        rows,
        lambda rows: differences(rows, "attack", "risk"),
        section="Evidence on anonymity",
        title="Singling out, linkability, inference",
        caption=f"How much better each attack does on members than on {many(page.summary.unit)} that were never read, "
        "of what is left to do better: (main - control) / (1 - control), with 95% intervals. Ticks: the most that the "
        "proved curve allows. An attack that no guess at random is worse than says nothing (column informed). This is "
        "evidence on three criteria, not a finding that the rows are outside data-protection law.",
        alt=listed("Risk", rows, "variant", "attack", value="risk"),
        wide=True,
    )


_PLOTS = {"risk": lambda page: risks(page.results)}
SECTION = Section("anonymity", (ANONYMITY,), figures=_figures, plots=_PLOTS, heading="Evidence on anonymity")
