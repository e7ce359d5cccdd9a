"""Evidence on singling out, linkability and inference."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.audit.anonymity import AnonymityAudit
from palimpsest.report.drawing import Rows, describe_values, differences, fields
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Section, Table, badge, share_column, word_column
from palimpsest.report.unit import plural_of

ANONYMITY = Metric("anonymity", AnonymityAudit.from_json, lambda params: params.run.audit)


def risks(results: Results) -> Rows:
    """Return variant, criterion, attack, risk, low, high, main, control, baseline, cap, informed: one row per attack.

    Attacks without a risk are left out: `undefined_risks` lists them.
    """
    return [
        {"variant": variant, "criterion": one.criterion, "attack": f"{one.criterion}: {attack}"}
        | {"risk": one.risk.value, "low": one.risk.low, "high": one.risk.high}
        | {"main": one.main.rate, "control": one.control.rate}
        | fields(one, "baseline", "cap", "informed")
        for variant, audit in results.of(ANONYMITY).items()
        for attack, one in audit.attacks.items()
        if one.risk and not one.inconclusive
    ]


def undefined_risks(results: Results) -> Rows:
    """Return variant, attack, main, control, verdict, why: the attacks that show nothing."""
    return [
        {"variant": variant, "attack": f"{one.criterion}: {attack}", "verdict": "inconclusive", "why": one.inconclusive}
        | {"main": one.main.rate, "control": one.control.rate}
        for variant, audit in results.of(ANONYMITY).items()
        for attack, one in audit.attacks.items()
        if one.inconclusive
    ]


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Evidence on anonymity without a risk",
        f"A risk is what an attack does on members beyond what it does on {plural_of(page.summary.unit)} that were "
        "never read. Where it succeeds on all of these there is nothing beyond, and it shows nothing. Nor does it "
        "where it does not find near copies of a hundred records, without their last words, planted to try it.",
        (
            word_column("Variant", "variant"),
            word_column("Attack", "attack"),
            share_column("On members", "main"),
            share_column("On others", "control"),
            Column("Verdict", lambda row: Cell(badge(row["verdict"]), (f"because {row['why']}",))),
        ),
        undefined_risks(page.results),
    )


def _figures(page: Page) -> Iterator[Figure]:
    rows = risks(page.results)
    return Figure.of(
        rows,
        lambda rows: differences(rows, "attack", "risk"),
        section="Evidence on anonymity",
        title="Singling out, linkability, inference",
        caption=f"How much better each attack does on members than on {plural_of(page.summary.unit)} that were never "
        "read, of what is left to do better: (main - control) / (1 - control), with 95% intervals. Ticks: the most "
        "that the proved curve allows. An attack that no guess at random is worse than says nothing (column "
        "informed). This is evidence on three criteria, not a finding that the rows are outside data-protection law.",
        alt=describe_values("Risk", rows, "variant", "attack", value="risk"),
        wide=True,
    )


_PLOTS = {"risk": lambda page: risks(page.results)}
SECTION = Section(
    "anonymity", (ANONYMITY,), tables=_tables, figures=_figures, plots=_PLOTS, heading="Evidence on anonymity"
)
