"""A section on what a judge's answers behind one row give away: densities of members and of others, and the control."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import altair as alt

from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, ORANGE, Chart, Rows
from palimpsest.report.formats import number
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import (
    MEMBERS,
    OTHERS,
    Cell,
    Column,
    Figure,
    MembershipKind,
    Page,
    Section,
    Table,
    badge,
    number_column,
    word_column,
)
from palimpsest_lab.audits.prompt_membership import BINS, Density, PromptMembershipAudit
from palimpsest_lab.settings import run_of

PROMPT = Metric("prompt_membership", PromptMembershipAudit.from_json, lambda params: run_of(params).prompt_mia)

ITSELF, SYNTHETIC = "the member itself", "one synthetic row"


def density(found: Density) -> Rows:
    """Return side, from, to, share: how often an own label has a probability in each part of 0 to 1."""
    return [
        {"side": side, "from": place / BINS, "to": (place + 1) / BINS, "share": count / sum(counts)}
        for side, counts in ((MEMBERS, found.members), (OTHERS, found.others))
        for place, count in enumerate(counts)
    ]


def chart(rows: Rows) -> Chart:
    """Draw members over others, by how likely the judge finds their own labels."""
    bars = (
        alt.Chart(draw.data(rows))
        .mark_bar(opacity=0.5)
        .encode(
            x=alt.X("from:Q", bin="binned", title="probability of the own label", scale=alt.Scale(domain=[0, 1])),
            x2="to:Q",
            y=alt.Y("share:Q", title="share of each side", stack=None, axis=alt.Axis(format="%")),
            color=draw.make_channel(alt.Color, "side", {MEMBERS: ORANGE, OTHERS: BLUE}),
            tooltip=draw.tips("side:N", "from:Q", "to:Q", "share:Q"),
        )
    )
    return draw.finish(bars, 240)


def attacks(results: Results) -> Rows:
    """Return variant, behind, auc, low, high, tpr, control: the control first, and whether it works."""
    return [
        {"variant": variant, "behind": behind, "auc": attack.auc.value, "tpr": attack.tpr_at_1pct.rate}
        | draw.fields(attack.auc, "low", "high")
        | {"control": control}
        for variant, audit in results.of(PROMPT).items()
        for behind, attack, control in (
            (ITSELF, audit.shown.attack, "works" if audit.shown.works else "does not work"),
            *((SYNTHETIC, found, None) for found in audit.membership.attacks.values()),
        )
    ]


def _figures(page: Page) -> Iterator[Figure]:
    for variant, audit in page.results.of(PROMPT).items():
        yield _figure(
            f"A member in the prompt, {variant}",
            "A row that was trained on stands in the prompt and is asked about, beside one of its label that was never "
            "read. The attack has to tell the two sides apart here.",
            audit.shown.density,
        )
        yield _figure(
            f"One row of {variant} in the prompt",
            "A synthetic row stands there instead, and all members and others are asked about. "
            "Where nothing is given away the two sides lie on each other.",
            audit.density,
        )


def _figure(title: str, caption: str, found: Density) -> Figure:
    rows = density(found)
    means = {side: sum(_middle(row) for row in rows if row["side"] == side) for side in (MEMBERS, OTHERS)}
    words = ", ".join(f"{side} {mean:.2f}" for side, mean in means.items())
    told = f"How likely a judge finds the own label of members and of others; on average {words}."
    return Figure("Privacy", title, caption, told, chart(rows), rows)


def _middle(row: Mapping[str, Any]) -> float:
    return float(row["share"] * (row["from"] + row["to"]) / 2)


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Membership behind a prompt",
        "A judge, a language model, answers members and others behind one demonstration. Where a member does not stand "
        "out behind itself, the judge cannot be used for this, and the attack is inconclusive.",
        (
            word_column("Variant", "variant"),
            word_column("The prompt shows", "behind"),
            Column("AUC", _auc, number=True),
            number_column("Members found at 1% false alarms", "tpr"),
            Column("Control", lambda row: Cell(badge(row["control"])) if row["control"] else None),
        ),
        attacks(page.results),
    )


def _auc(row: Mapping[str, Any]) -> Cell:
    return Cell(number(row["auc"]), (f"{number(row['low'])} to {number(row['high'])}",))


SECTION = Section("prompts", tables=_tables, figures=_figures, heading="Privacy")
ATTACK = MembershipKind(
    "D",
    PROMPT,
    "rows in a judge's prompt",
    "Membership attacks behind one row of {}",
    lambda result: result.membership,
    lambda result, audit: replace(result, membership=audit).verdict,
)
