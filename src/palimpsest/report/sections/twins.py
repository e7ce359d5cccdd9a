"""End-to-end audits on invented records: could the audit have failed? Public numbers alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt

from palimpsest.report.drawing import ROW, Chart, Rows, data, finish, names, tips
from palimpsest.report.results import Document, Metric
from palimpsest.report.sections.base import Figure, Section
from palimpsest.report.theme import BLUE, GREEN, GREY, ORANGE

TWINS: Metric[Document] = Metric("twins", dict, lambda params: params.run.twins, path="twins/{}.json")

CLAIM, CORRECT, BROKEN, POWER = "claim", "the code as it is", "broken on purpose", "largest claim it could refute"


def twins(audits: Mapping[str, Mapping[str, Any]]) -> Rows:
    """method, kind, fault, epsilon: what each end-to-end audit claims, shows, and shows of code broken on purpose."""
    return [row for method, audit in audits.items() for row in _twins(method, audit)]


def _twins(method: str, audit: Mapping[str, Any]) -> Rows:
    own = ((CLAIM, "", audit["claim"]), (CORRECT, "", audit["epsilon_lower"]), (POWER, "", audit["eps_max"]))
    broken = [(BROKEN, twin["fault"], twin["epsilon_lower"]) for twin in audit["twins"]]
    return [
        {"method": method, "kind": kind, "fault": fault, "epsilon": epsilon} for kind, fault, epsilon in (*own, *broken)
    ]


def chart(rows: Rows) -> Chart:
    """Per method, what the audit of invented records claims, shows, could show, and shows of broken code."""
    kinds, hues = [CLAIM, CORRECT, BROKEN, POWER], [BLUE, GREEN, ORANGE, GREY]
    marks = alt.Scale(domain=kinds, range=["square", "circle", "triangle-up", "diamond"])
    dots = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=130, opacity=1)
        .encode(
            x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(domainMin=0, nice=True)),
            y=alt.Y("method:N", title=None, sort=names(rows, "method"), axis=alt.Axis(offset=12)),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=hues)),
            shape=alt.Shape("kind:N", title=None, scale=marks),
            tooltip=tips("method:N", "kind:N", "fault:N", "epsilon:Q"),
        )
    )
    return finish(alt.layer(dots), ROW * len(names(rows, "method")) + 20, columns=2)


def figures(audits: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    """The card's figure; the page of the private zone has the attacks on the run itself.

    Args:
        audits: method -> its end-to-end audit.
    """
    if bars := twins(audits):
        yield Figure(
            section="Privacy",
            title="Could the audit have failed?",
            caption="Each method's own code on invented records at a claim small enough to be refuted. The attack on "
            "the code as it is must stay left of its claim; versions broken on purpose must pass it.",
            alt="; ".join(f"{row['method']}, {row['kind']}: {row['epsilon']:.3g}" for row in bars) + ".",
            chart=chart(bars),
            rows=bars,
            wide=True,
        )


SECTION = Section("twins", (TWINS,))
