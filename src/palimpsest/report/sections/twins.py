"""End-to-end audits on invented records: could the audit have failed? Public numbers alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt

from palimpsest.report.drawing import Chart, Rows, epsilons, finish, height_of
from palimpsest.report.results import Document, Metric
from palimpsest.report.sections.base import Figure, Section
from palimpsest.report.theme import BLUE, GREEN, GREY, ORANGE

TWINS: Metric[Document] = Metric("twins", dict, lambda params: params.run.twins, path="twins/{}.json")

CLAIM, CORRECT, BROKEN, POWER = "claim", "the code as it is", "broken on purpose", "largest claim it could refute"
_KINDS = {
    CLAIM: (BLUE, "square"), CORRECT: (GREEN, "circle"), BROKEN: (ORANGE, "triangle-up"), POWER: (GREY, "diamond"),
}  # fmt: skip


def twins(audits: Mapping[str, Mapping[str, Any]]) -> Rows:
    """method, kind, fault, epsilon: what each end-to-end audit claims, shows, and shows of code broken on purpose."""
    return [
        {"method": method, "kind": kind, "fault": fault, "epsilon": epsilon}
        for method, audit in audits.items()
        for kind, fault, epsilon in (
            *((CLAIM, "", audit["claim"]), (CORRECT, "", audit["epsilon_lower"]), (POWER, "", audit["eps_max"])),
            *((BROKEN, twin["fault"], twin["epsilon_lower"]) for twin in audit["twins"]),
        )
    ]


def chart(rows: Rows) -> Chart:
    """Per method, what the audit of invented records claims, shows, could show, and shows of broken code."""
    return finish(alt.layer(epsilons(rows, "method", _KINDS, "fault:N")), height_of(rows, "method"), columns=2)


def figures(audits: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    """The card's figure, of method -> its audit; the page of the private zone has the attacks on the run itself."""
    rows = twins(audits)
    return Figure.of(
        rows,
        chart,
        section="Privacy",
        title="Could the audit have failed?",
        caption="Each method's own code on invented records at a claim small enough to be refuted. The attack on the "
        "code as it is must stay left of its claim; versions broken on purpose must pass it.",
        alt="; ".join(f"{row['method']}, {row['kind']}: {row['epsilon']:.3g}" for row in rows) + ".",
        wide=True,
    )


SECTION = Section("twins", (TWINS,), heading="Privacy")
