"""Attacks on the rows: membership, with the attacks that packages bring, and singling out, linkability, inference."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import altair as alt
import numpy as np
from scipy.stats import betabinom

from palimpsest import extensions
from palimpsest.audit.anonymity import AnonymityAudit
from palimpsest.audit.membership import MembershipAudit
from palimpsest.audit.statistics import Estimate, thin
from palimpsest.audit.text_membership import TextMembershipAudit
from palimpsest.audit.units import finds_copies
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, GREY, ORANGE, SERIES, Chart, Rows
from palimpsest.report.formats import at_least, number, plural_of
from palimpsest.report.results import BASELINES, Membership, Metric, Results, Row, Summary, measured_subjects
from palimpsest.report.sections.base import (
    MEMBERS,
    OTHERS,
    Cell,
    Claim,
    Column,
    Figure,
    MembershipKind,
    Page,
    Section,
    Table,
    badge,
    claim_of,
    inconclusive_cell,
    number_column,
    share_column,
    word_column,
)
from palimpsest.report.tradeoff import TradeOff, read_tradeoff

RISKS = Metric("anonymity", AnonymityAudit.from_json, lambda params: params.run.audit)


_MODEL = Metric("membership", MembershipAudit.from_json, measured_subjects)
_TEXT = Metric("text_membership", TextMembershipAudit.from_json, lambda params: params.run.audit)


KINDS: Mapping[str, MembershipKind] = {
    kind.metric.name: kind
    for kind in (
        MembershipKind("M", _MODEL, "model", "Membership attacks on {}"),
        MembershipKind(
            "R", _TEXT, "rows alone", "Membership attacks on the rows of {} alone", lambda result: result.membership
        ),
        *extensions.load_group(extensions.ATTACKS).values(),
    )
}  # fmt: skip

_CORNERS = 80  # corners of one ROC curve


def strongest(results: Results, variant: str) -> dict[str, Membership]:
    """Return the strongest attack of each kind that came to a result.

    All attacks are about one claim, so each is tested as one of as many as were made. An attack that came to no result
    keeps its share, as one whose control failed does: how strict the others are must not depend on the rows.
    """
    made = sum(variant in results.documents.get(name, {}) for name in KINDS)
    found = {name: results.get(kind.metric, variant) for name, kind in KINDS.items()}
    return {name: _strongest(KINDS[name], result, made) for name, result in found.items() if result is not None}


def _strongest(kind: MembershipKind, result: Any, made: int) -> Membership:
    audit = kind.audit(result).among(made)
    attack, best = max(audit.attacks.items(), key=lambda item: item[1].auc.value)
    rate = best.tpr_at_1pct
    return Membership(
        attack=attack,
        auc=best.auc,
        true_positives=Estimate(rate.rate, rate.low, rate.high),
        epsilon_lower=audit.epsilon_lower.value,
        eps_max=audit.eps_max,
        control_passed=audit.control.passed,
        verdict=kind.verdict(result, audit),
        p=audit.p,
    )


def _columns(_: Page) -> Iterator[Column[Row]]:
    name = "Membership AUC"
    yield Column(name, _auc("membership"), note="the model", label=f"{name}, model")
    yield Column(name, _auc("text_membership"), note="the rows alone", label=f"{name}, rows")
    yield Column("Verdict", lambda row: Cell(badge(row.verdict)) if row.verdict else None)


def _auc(kind: str) -> Callable[[Row], Cell | None]:
    def cell(row: Row) -> Cell | None:
        if kind not in row.audits:
            return inconclusive_cell(row, kind)
        audit = row.audits[kind]
        return Cell(number(audit.auc.value), (f"{number(audit.auc.low)} to {number(audit.auc.high)}, {audit.attack}",))

    return cell


def hard_gates(summary: Summary) -> Rows:
    """Return variant, seen, claim, lower, eps_max, p, verdict: every test of a released claim, as one of all its tests.

    Tests that came to no result are inconclusive, and have no numbers.
    """
    made: Rows = [
        {"variant": row.variant, "seen": f"the {KINDS[kind].sees}", "claim": row.epsilon_proved}
        | {"lower": audit.epsilon_lower}
        | draw.fields(audit, "eps_max", "p", "verdict")
        for row in summary.of("release")
        for kind, audit in row.audits.items()
    ]
    without: dict[str, Any] = {"lower": None, "eps_max": None, "p": None, "verdict": "inconclusive"}
    return made + [
        {"variant": row.variant, "seen": f"the {KINDS[kind].sees}", "claim": row.epsilon_proved} | without
        for row in summary.of("release")
        for kind in row.unsettled_attacks
    ]


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Tests of the claims",
        "Every test of a released claim. All tests of one claim together refute it with 5% probability at most where "
        "it is true (Bonferroni). So what was shown, what a perfect attack could have shown and the verdict hang on "
        "how many tests there are. p, by itself: how likely a true claim lets the attacks guess so well.",
        (
            word_column("Variant", "variant"),
            word_column("The attack sees", "seen"),
            number_column("Claim", "claim"),
            number_column("Shown", "lower", digits=2),
            number_column("Could show", "eps_max", digits=2),
            number_column("p", "p", digits=2),
            Column("Verdict", lambda row: Cell(badge(row["verdict"]))),
        ),
        hard_gates(page.summary),
    )
    yield Table(
        "Attacks tried on planted copies",
        "Each attack on the rows is tried on near copies of a hundred such texts, every tenth sign mistyped; each on "
        "the model, on the public model after it was taught thirty-two of them. An attack that does not tell these "
        "from others cannot judge texts of this kind: that it found nothing says nothing.",
        (
            word_column("Variant", "variant"),
            word_column("The attack sees", "seen"),
            word_column("Attack", "attack"),
            number_column("AUC", "auc", digits=3),
            number_column("95% from", "low", digits=3),
            Column("", lambda row: Cell(row["judges"])),
        ),
        planted(page.results),
    )


def planted(results: Results) -> Rows:
    """Return variant, seen, attack, auc, low, judges: each attack where it must find records that were planted."""
    return [
        {"variant": variant, "seen": f"the {kind.sees}", "attack": attack}
        | _describe_planted(audit.planted.get(attack))
        for kind in KINDS.values()
        for variant, audit in ((name, kind.audit(result)) for name, result in results.of(kind.metric).items())
        for attack in audit.attacks
    ]


def _describe_planted(auc: Estimate | None) -> dict[str, Any]:
    if auc is None:
        return {"auc": None, "low": None, "judges": "was not tried"}
    return {"auc": auc.value, "low": auc.low, "judges": "finds them" if finds_copies(auc) else "cannot judge"}


def roc(audit: MembershipAudit) -> Rows:
    """Return attack, fpr, tpr: zero rates are lifted to half a member, so that a logarithmic axis can hold them."""
    floor = rate_floor(audit)
    return [
        {"attack": name, "fpr": max(fpr, floor), "tpr": max(tpr, floor)}
        for name, attack in audit.attacks.items()
        for fpr, tpr in thin(attack.roc, _CORNERS).tolist()
    ]


def rate_floor(audit: MembershipAudit) -> float:
    """Return half a member's share: the smallest rate drawn."""
    return 0.5 / max(audit.members, audit.nonmembers)


def null_band(members: int, nonmembers: int, points: int = 40) -> Rows:
    """Return fpr, low, high: pointwise 95 % band of the ROC where members and non-members are exchangeable.

    The k-th highest of m non-member scores cuts off a Beta(k, m - k + 1) share of a continuous score, so the count
    among n members is beta-binomial, exactly.
    """
    ranks = np.unique(np.geomspace(1, nonmembers, points).astype(int))
    low, high = (betabinom.ppf(tail, members, ranks, nonmembers - ranks + 1) / members for tail in (0.025, 0.975))
    floor = 0.5 / max(members, nonmembers)
    return [
        {"fpr": float(rank / nonmembers), "low": max(float(bottom), floor), "high": max(float(top), floor)}
        for rank, bottom, top in zip(ranks, low, high, strict=True)
    ]


def _forbidden_region(curve: TradeOff, floor: float, points: int = 60) -> Rows:
    """Return fpr, limit, top: no attack's expected curve may lie above `limit` if the proven one holds."""
    grid = np.geomspace(floor, 1.0, points)
    return [{"fpr": float(fpr), "limit": curve.true_positives(float(fpr)), "top": 1.0} for fpr in grid]


def _roc_chart(curves: Rows, band: Rows, forbidden: Rows) -> Chart:
    """Draw the membership ROC on log axes, the band of chance, and (where a curve is proved) the region it forbids."""
    x, y, scale = draw.log_rates(min(row["fpr"] for row in curves + band), "non-members accused", "members found")
    color = draw.make_channel(alt.Color, "attack", draw.assign_looks(draw.names(curves, "attack"), SERIES))
    lines = alt.Chart(draw.data(curves)).mark_line(strokeWidth=2, interpolate="step-after", clip=True)
    lines = lines.encode(
        x=x,
        y=y,
        color=color,
        strokeDash=draw.dash_channel(curves, "attack"),
        tooltip=draw.tips("attack:N", "fpr:Q", "tpr:Q"),
    )
    chance = alt.Chart(draw.data(band)).mark_area(color=GREY, opacity=0.25)
    layers = [chance.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"), lines]
    if forbidden:
        area = alt.Chart(draw.data(forbidden)).mark_area(color=ORANGE, opacity=0.16, clip=True)
        layers.insert(0, area.encode(x=x, y=alt.Y("limit:Q", scale=scale), y2="top:Q"))
    return draw.finish(alt.layer(*layers), 300)


def _rocs(page: Page, audits: Mapping[str, MembershipAudit], title: str) -> Iterator[Figure]:
    for variant, audit in audits.items():
        if variant in BASELINES:
            continue
        points, band = roc(audit), null_band(audit.members, audit.nonmembers)
        curve = read_tradeoff(page.receipts[variant]) if variant in page.receipts else None
        region = _forbidden_region(curve, rate_floor(audit)) if curve else []
        claim = (
            " If the proof holds, an attack's true curve stays out of the shaded corner at the top left. The one drawn "
            "is of few units and may touch it by chance: the verdict is the test."
            if region
            else ""
        )
        aucs = ", ".join(f"{name} {attack.auc.value:.3f}" for name, attack in audit.attacks.items())
        yield Figure(
            section="Privacy",
            title=title.format(variant),
            caption=f"Inside the grey band an attack does no better than chance (95%, pointwise).{claim}",
            alt=f"Share of members found against share of non-members accused, both on log axes. AUC: {aucs}.",
            chart=_roc_chart(points, band, region),
            rows=points,
        )


def phantoms(results: Results) -> Rows:
    """Return variant, order, side, rate, low, high, count, n, p: units whose own n-grams came out.

    The sides are units that were trained on and units that were not.
    """
    return [
        {"variant": variant, "order": order, "side": side}
        | draw.fields(rate, "rate", "low", "high", "count", "n")
        | {"p": one.p}
        for variant, audit in results.of(_TEXT).items()
        for order, one in audit.phantom.orders.items()
        for side, rate in ((MEMBERS, one.train), (OTHERS, one.holdout))
        if rate.n
    ]


def _phantom_chart(rows: Rows, units: str) -> Chart:
    """Draw the share given away by n-grams that only they have: members beside `units` never read, per n."""
    base = alt.Chart(draw.data(rows)).encode(
        y=draw.line_axis(rows, "variant"),
        yOffset=alt.YOffset("order:O"),
        color=draw.make_channel(alt.Color, "side", {MEMBERS: ORANGE, OTHERS: BLUE}),
        tooltip=draw.tips("variant:N", "order:O", "side:N", "count:Q", "n:Q", "rate:Q", "low:Q", "high:Q", "p:Q"),
    )
    low = alt.X("low:Q", title=f"{units} whose own n-grams came out", axis=alt.Axis(format="%"))
    layers = draw.intervals(
        base, low, "rate", 80, shape=draw.make_channel(alt.Shape, "side", {MEMBERS: "circle", OTHERS: "square"})
    )
    return draw.finish(
        alt.layer(*layers), draw.height_of(rows, "variant", draw.ROW * max(2, len(draw.names(rows, "order"))))
    )


def _phantoms(page: Page) -> Iterator[Figure]:
    unit, rows = page.summary.unit, phantoms(page.results)
    return Figure.of(
        rows,
        lambda rows: _phantom_chart(rows, plural_of(unit)),
        section="Privacy",
        title=f"Words that one {unit} alone has",
        caption=f"Share of {plural_of(unit)} with an n-gram in the rows that no other of these and no public text has. "
        "The lines of a variant are n. As many that were never read are given away by chance. 95% intervals.",
        alt=draw.describe_values(f"Share of {plural_of(unit)}", rows, "variant", "order", "side", value="rate"),
        wide=True,
    )


def _figures(page: Page) -> Iterator[Figure]:
    for kind in KINDS.values():
        audits = {variant: kind.audit(result) for variant, result in page.results.of(kind.metric).items()}
        yield from _rocs(page, audits, kind.title)
    yield from _phantoms(page)


def _claims(row: Row, results: Results, _: str) -> Iterator[Claim]:
    for kind, audit in row.audits.items():
        seen, most = KINDS[kind], audit.eps_max
        power = "" if most is None else f" (perfect ones could have refuted a claim of up to ε = {at_least(most, 2)})"
        sentence = f"Membership attacks on {row.variant} that see its {seen.sees}: {audit.verdict}{power}."
        yield claim_of(seen.mark, row, seen.metric, sentence, results, audit.verdict != "inconclusive")


SECTION = Section(
    "membership",
    tuple(kind.metric for kind in KINDS.values()),
    columns=_columns,
    tables=_tables,
    figures=_figures,
    claims=_claims,
    heading="Privacy",
)


def risks(results: Results) -> Rows:
    """Return variant, criterion, attack, risk, low, high, main, control, baseline, cap, informed: one row per attack.

    Attacks without a risk are left out: `undefined_risks` lists them.
    """
    return [
        {"variant": variant, "criterion": one.criterion, "attack": f"{one.criterion}: {attack}"}
        | {"risk": one.risk.value, "low": one.risk.low, "high": one.risk.high}
        | {"main": one.main.rate, "control": one.control.rate}
        | draw.fields(one, "baseline", "cap", "informed")
        for variant, audit in results.of(RISKS).items()
        for attack, one in audit.attacks.items()
        if one.risk and not one.inconclusive
    ]


def undefined_risks(results: Results) -> Rows:
    """Return variant, attack, main, control, verdict, why: the attacks that show nothing."""
    return [
        {"variant": variant, "attack": f"{one.criterion}: {attack}", "verdict": "inconclusive", "why": one.inconclusive}
        | {"main": one.main.rate, "control": one.control.rate}
        for variant, audit in results.of(RISKS).items()
        for attack, one in audit.attacks.items()
        if one.inconclusive
    ]


def _risk_tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
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


def _risk_figures(page: Page) -> Iterator[Figure]:
    rows = risks(page.results)
    return Figure.of(
        rows,
        lambda rows: draw.differences(rows, "attack", "risk"),
        section="Evidence on anonymity",
        title="Singling out, linkability, inference",
        caption=f"How much better each attack does on members than on {plural_of(page.summary.unit)} that were never "
        "read, of what is left to do better: (main - control) / (1 - control), with 95% intervals. Ticks: the most "
        "that the proved curve allows. An attack that no guess at random is worse than says nothing (column "
        "informed). This is evidence on three criteria, not a finding that the rows are outside data-protection law.",
        alt=draw.describe_values("Risk", rows, "variant", "attack", value="risk"),
        wide=True,
    )


_RISK_PLOTS = {"risk": lambda page: risks(page.results)}
ANONYMITY = Section(
    "anonymity",
    (RISKS,),
    tables=_risk_tables,
    figures=_risk_figures,
    plots=_RISK_PLOTS,
    heading="Evidence on anonymity",
)
