"""Which figures a page has, in order: a chart, the table behind it, and the words that go with both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report import embedding, evidence, figures, tables
from palimpsest.report.formats import percent
from palimpsest.report.summary import BASELINES, Metrics, Summary
from palimpsest.report.tables import Rows
from palimpsest.report.tradeoff import read_tradeoff
from palimpsest.report.unit import many
from palimpsest.workspace import Zone

_NO_MODELS: Mapping[str, Any] = MappingProxyType({})
_LACKS = {"context": "the model's context is too short", "demonstrations": "too few rows"}
_MEASURES = {"frechet": "Fréchet distance", "energy": "Energy distance", "wasserstein": "Wasserstein distance"}
_PANEL_KEYS = ("name", "method", "label")


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        section: the heading it stands under.
        title: what it shows, in a few words.
        caption: how to read it.
        alt: what it shows, for those who cannot see it.
        chart: the drawing.
        rows: the table behind it.
        wide: True where it takes the page's whole width.
    """

    section: str
    title: str
    caption: str
    alt: str
    chart: figures.Chart
    rows: Rows
    wide: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns."""
        return tuple(self.rows[0])


def gallery(
    summary: Summary,
    metrics: Metrics,
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    models: Mapping[str, Any] = _NO_MODELS,
) -> tuple[Figure, ...]:
    """Every figure that the given metrics allow; what was not measured has none.

    Args:
        summary: the final table.
        metrics: variant -> kind -> the metric file's content.
        receipts: variant -> its receipt.
        ledger: the asset's ledger summary.
        models: language model -> its separation audit, in the order of the page.
    """
    return (
        *_bracket(summary),
        *_rocs(metrics, receipts),
        *_from_rows(metrics, summary.unit),
        *_overlaps(metrics),
        *_repeated(metrics, summary.unit),
        *_anonymity(metrics, summary.unit),
        *_frontiers(summary),
        *_classes(summary, metrics),
        *_in_context(metrics, receipts),
        *separations(models),
        *_carried(metrics, summary.unit),
        *_structures(metrics),
        *_likeness(metrics),
        *_distances(metrics),
        *_votes(metrics),
        *_shapes(metrics),
        waterfall(ledger),
    )


def pipeline(stages: Sequence[Mapping[str, Any]]) -> Figure:
    """The DAG with its zones."""
    nodes = tables.nodes(stages)
    table = [{key: row[key] for key in ("name", "zone", "description", "needs")} for row in nodes]
    counts = ", ".join(f"{sum(row['zone'] == zone for row in nodes)} {zone}" for zone in Zone)
    return Figure(
        section="Provenance",
        title="What was computed from what",
        caption="Squares read private rows, circles read only protected outputs, triangles read only public text.",
        alt=f"The stages as a graph from left to right: {counts}.",
        chart=figures.dag(nodes, tables.edges(stages)),
        rows=table,
        wide=True,
    )


def separations(models: Mapping[str, Any]) -> Iterator[Figure]:
    """How well each language model's hidden states separate the labels, and drawings of these states."""
    scores, dots = tables.separation(models), tables.projection(models)
    if scores:
        yield Figure(
            section="Separation",
            title="Labels that a forest reads off hidden states",
            caption="A random forest sees each model's mean state of a text, never the text, and names the label of "
            "real test rows; 95% intervals. The grey tick is chance: always the commonest label.",
            alt=_list("Accuracy of the forest", scores, "name", value="accuracy"),
            chart=figures.separation(scores),
            rows=scores,
        )
    if dots:
        names, methods, labels = (", ".join(dict.fromkeys(row[key] for row in dots)) for key in _PANEL_KEYS)
        yield Figure(
            section="Separation",
            title="Hidden states of real test rows",
            caption="Every mark is one private row, without its text: the drawing stays in the private zone. Each "
            "panel is stretched to fill its place; under UMAP only who is near whom means anything.",
            alt=f"Marks in a plane, a row of panels for each of {names}, a column for each of {methods}, a colour "
            f"and shape for each of {labels}.",
            chart=figures.projections(dots),
            rows=dots,
            wide=True,
        )


def _bracket(summary: Summary) -> Iterator[Figure]:
    rows = tables.bracket(summary)
    if rows:
        yield Figure(
            section="Privacy",
            title="Between what is proved and what was attacked",
            caption="The true privacy loss of a release lies on its bar: not above the proof, not below what the "
            "attack showed (95%). A claim beyond the diamond could not have been refuted by this attack, whatever "
            "the code did.",
            alt=_list("Epsilon per variant", rows, "variant", "kind", value="epsilon"),
            chart=figures.bracket(rows),
            rows=rows,
            wide=True,
        )


def _rocs(metrics: Metrics, receipts: Mapping[str, Receipt]) -> Iterator[Figure]:
    yield from _rocs_of(metrics, receipts, "membership", "Membership attacks on {}")
    yield from _rocs_of(metrics, receipts, "text_membership", "Membership attacks on the rows of {} alone")
    yield from _rocs_of(metrics, receipts, "shadow_membership", "Membership attacks on {} with shadow models")


def _rocs_of(metrics: Metrics, receipts: Mapping[str, Receipt], kind: str, title: str) -> Iterator[Figure]:
    for variant, found in _having(metrics, kind):
        points, band = tables.roc(found), tables.null_band(found)
        curve = read_tradeoff(receipts[variant]) if variant in receipts else None
        region = tables.forbidden(curve, tables.rate_floor(found)) if curve else []
        claim = " No attack may enter the shaded corner at the top left if the proof holds." if region else ""
        aucs = ", ".join(f"{name} {attack['auc']:.3f}" for name, attack in found["attacks"].items())
        yield Figure(
            section="Privacy",
            title=title.format(variant),
            caption=f"Inside the grey band an attack does no better than chance (95%, pointwise).{claim}",
            alt=f"Share of members found against share of non-members accused, both on log axes. AUC: {aucs}.",
            chart=figures.roc(points, band, region),
            rows=points,
        )


def _from_rows(metrics: Metrics, unit: str) -> Iterator[Figure]:
    """What the rows alone give away, whatever wrote them."""
    rows = evidence.phantoms(metrics)
    if rows:
        yield Figure(
            section="Privacy",
            title=f"Words that one {unit} alone has",
            caption=f"Share of {many(unit)} with an n-gram in the rows that no other {unit} and no public text has; "
            "the lines of a variant are n. As many that were never read are given away by chance. 95% intervals.",
            alt=_list(f"Share of {many(unit)}", rows, "variant", "order", "side", value="rate"),
            chart=figures.phantoms(rows, many(unit)),
            rows=rows,
            wide=True,
        )


def _repeated(metrics: Metrics, unit: str) -> Iterator[Figure]:
    rows = evidence.repeats(metrics)
    if rows:
        yield Figure(
            section="Memorisation",
            title="Members and secrets that the rows repeat",
            caption=f"Share of members that are repeated, less the share of {many(unit)} that were never read (of "
            "planted secrets: less secrets that were never planted). 95% intervals.",
            alt=_list("Excess", rows, "variant", "what", value="value"),
            chart=figures.differences(rows, "what", "members less the control"),
            rows=rows,
            wide=True,
        )


def _anonymity(metrics: Metrics, unit: str) -> Iterator[Figure]:
    rows = evidence.risks(metrics)
    if rows:
        yield Figure(
            section="Evidence on anonymity",
            title="Singling out, linkability, inference",
            caption=f"How much better each attack does on members than on {many(unit)} that were never read, of what "
            "is left to do better: (main - control) / (1 - control), with 95% intervals. Ticks: the most that the "
            "proved curve allows. An attack that no guess at random is worse than says nothing (column informed). This "
            "is evidence on three criteria, not a finding that the rows are outside data-protection law.",
            alt=_list("Risk", rows, "variant", "attack", value="risk"),
            chart=figures.differences(rows, "attack", "risk"),
            rows=rows,
            wide=True,
        )


def _overlaps(metrics: Metrics) -> Iterator[Figure]:
    rows = tables.excess(metrics)
    for variant, found in _having(metrics, "ngrams"):
        bars, own = tables.overlap(found), [row for row in rows if row["variant"] == variant]
        yield Figure(
            section="Memorisation",
            title=f"Overlap of {variant} with members, holdout and public text",
            caption="The number on top is members minus holdout, in percentage points: overlap alone says nothing, for "
            "text of one kind always shares phrases.",
            alt=_list(f"Share of {variant}'s n-grams found", bars, "order", "corpus", value="rate"),
            chart=figures.overlap(bars, own),
            rows=bars,
        )
    if rows:
        yield Figure(
            section="Memorisation",
            title="Excess over a holdout that nothing ever saw",
            caption="An interval that stays above zero means that the text repeats rows it was trained on more than "
            "chance explains.",
            alt=_list("Excess with 95% intervals", rows, "variant", "order", value="value"),
            chart=figures.excess(rows),
            rows=rows,
            wide=True,
        )


def _frontiers(summary: Summary) -> Iterator[Figure]:
    for evaluator in summary.evaluators:
        rows = tables.frontier(summary, evaluator)
        yield Figure(
            section="Utility",
            title=f"Usefulness for its privacy, by {evaluator}",
            caption="A classifier trained on each variant and tested on real rows, with 95% intervals. Level lines: "
            "the real rows, public text alone, and runs without noise.",
            alt=_list("Accuracy", rows, "variant", value="accuracy"),
            chart=figures.frontier(rows),
            rows=_in_words(rows, summary),
        )


def _in_words(rows: Rows, summary: Summary) -> Rows:
    """The rows, and the epsilon of a method that protects words in its own unit."""
    words = summary.per_word
    return [row | ({"epsilon": words[row["variant"]]} if row["variant"] in words else {}) for row in rows]


def _classes(summary: Summary, metrics: Metrics) -> Iterator[Figure]:
    for evaluator in summary.evaluators:
        rows = tables.per_class(metrics, evaluator)
        if rows:
            yield Figure(
                section="Utility",
                title=f"Every class, by {evaluator}",
                caption="Each mark is one variant; the bar joins the best and the worst.",
                alt=_list("F1", rows, "label", "variant", value="f1"),
                chart=figures.per_class(rows),
                rows=rows,
            )


def _in_context(metrics: Metrics, receipts: Mapping[str, Receipt]) -> Iterator[Figure]:
    rows = tables.in_context(metrics, receipts)
    if any(row["shots"] for row in rows):
        yield Figure(
            section="Utility",
            title="Answers behind demonstrations",
            caption=f"{cannot_judge(metrics)}The public language model answers real test rows behind demonstrations "
            "drawn at random from each row of the results; nothing is trained. 95% intervals over the test rows. "
            f"{_without_any(rows)}{_unanswered(metrics)}",
            alt=_list("Share answered right, by demonstrations", rows, "variant", "shots", value="accuracy"),
            chart=figures.in_context(rows),
            rows=rows,
            wide=True,
        )


def cannot_judge(metrics: Metrics) -> str:
    """What the evaluation says where real demonstrations do not help its model; nothing where they do."""
    found = (kinds["incontext"] for kinds in metrics.values() if "incontext" in kinds)
    return next((f"{one['note']} " for one in found if not one["judges"]), "")


def _without_any(rows: Rows) -> str:
    levels = dict.fromkeys(row["zero_shot"] for row in rows)
    shown = " and ".join(percent(level) for level in levels if level is not None)
    return f"Dashed: without demonstrations, {shown}." if shown else "Without demonstrations nothing was answered."


def _unanswered(metrics: Metrics) -> str:
    """Which numbers of demonstrations are missing from the drawing, and why."""
    missing: dict[tuple[int, str], list[str]] = {}
    for row in tables.unanswered(metrics):
        missing.setdefault((row["shots"], row["lacks"]), []).append(row["variant"])
    words = [f"{shots} of {', '.join(names)} ({_LACKS[lacks]})" for (shots, lacks), names in missing.items()]
    return f" Not asked: {'; '.join(words)}." if words else ""


def _structures(metrics: Metrics) -> Iterator[Figure]:
    rows = tables.structure(metrics)
    if rows:
        yield Figure(
            section="Structure",
            title="Rows that are JSON, and rows that conform",
            caption="Synthetic rows that are one JSON value, and those that conform to the public schema, "
            "of all rows. Intervals: Wilson, 95%.",
            alt=_list("Share of rows", rows, "variant", "what", value="share"),
            chart=figures.structure(rows),
            rows=rows,
        )


def _carried(metrics: Metrics, unit: str) -> Iterator[Figure]:
    rows = tables.carried(metrics)
    if rows:
        yield Figure(
            section="Facts",
            title=f"What many {many(unit)} agree on, and what survives",
            caption=f"Good synthetic text keeps the facts that many {many(unit)} state and drops what only one does. "
            "Bands: Wilson, 95%.",
            alt=_list("Share of population facts carried over", rows, "variant", "support", value="share"),
            chart=figures.carried(rows, many(unit)),
            rows=rows,
            wide=True,
        )


def _likeness(metrics: Metrics) -> Iterator[Figure]:
    rows = evidence.fidelity(metrics)
    drawn = [row for row in rows if row["place"] is not None]
    if drawn:
        yield Figure(
            section="Fidelity",
            title="How like the private rows the synthetic ones are, as sets",
            caption="Each measure at one number of rows, between what two halves of the private rows measure (0) and "
            "what public text does (1). Left of 0 is nearer to the members than private rows are to each other: look "
            "at the column unseen, against the holdout. What cannot tell public text from private is not drawn.",
            alt=_list("Place", drawn, "variant", "measure", value="place"),
            chart=figures.likeness(drawn),
            rows=rows,
            wide=True,
        )


def _distances(metrics: Metrics) -> Iterator[Figure]:
    for measure, name in _MEASURES.items():
        rows = [row for row in embedding.distances(metrics) if row["measure"] == measure]
        if rows:
            yield Figure(
                section="Fidelity",
                title=f"{name}, round by round",
                caption=f"How far the texts of each round are from the private ones, as embeddings. The "
                f"dashed line is how far training rows are from the holdout at the same number of rows: nearer than "
                f"that means copies.{_two_sets(rows)}",
                alt=_list(name, rows, "series", "round", value="value"),
                chart=figures.distances(rows),
                rows=rows,
            )


def _two_sets(rows: Rows) -> str:
    """What is compared where candidates and parents are told apart."""
    apart = dict.fromkeys(row["variant"] for row in rows if row["series"] != row["variant"])
    if not apart:
        return ""
    return (
        f" Of {', '.join(apart)}, all candidates of a round are drawn, and the parents that votes selected of them by "
        "themselves, with as many of each label as private rows have; fewer rows have a higher floor."
    )


def _votes(metrics: Metrics) -> Iterator[Figure]:
    votes, parents = embedding.votes(metrics), embedding.parents(metrics)
    if votes:
        yield Figure(
            section="Fidelity",
            title="How votes spread, round by round",
            caption="Variance of the exact votes over the candidates, before any noise; faint: each label by itself. "
            "Near the mean of the votes (in the table) it is what chance alone makes, and noisy votes then tell no "
            "candidate from another.",
            alt=_list("Variance", votes, "variant", "round", "label", value="variance"),
            chart=figures.votes(votes),
            rows=votes,
        )
        yield Figure(
            section="Fidelity",
            title="Parents, round by round",
            caption="Dashed: candidates that the noisy votes selected, over all labels. Solid: those of them whose "
            "text the public language model finds likely enough; only they have offspring.",
            alt=_list("Parents", parents, "variant", "round", "what", value="parents"),
            chart=figures.parents(parents),
            rows=parents,
        )


def _shapes(metrics: Metrics) -> Iterator[Figure]:
    labels, lengths = tables.label_shares(metrics), tables.lengths(metrics)
    if labels:
        yield Figure(
            section="Shape",
            title="How often each label occurs",
            caption="Shares of rows per label.",
            alt=_list("Share", labels, "label", "variant", value="share"),
            chart=figures.label_shares(labels),
            rows=labels,
        )
    if lengths:
        yield Figure(
            section="Shape",
            title="How long the rows are",
            caption="Share of rows per length bin.",
            alt=f"Length distributions of {', '.join(dict.fromkeys(row['variant'] for row in lengths))}.",
            chart=figures.lengths(lengths),
            rows=lengths,
        )


def waterfall(ledger: LedgerSummary) -> Figure:
    """The budget, charge by charge."""
    rows = tables.waterfall(ledger)
    return Figure(
        section="Budget",
        title="Where the budget went",
        caption="Each charge as if it stood alone, then what composing them takes off or adds (the total must hold "
        "for adaptive plans too), then the total that counts. Reference runs and refunds are outside it.",
        alt=f"The charges add up to epsilon {ledger.spent_epsilon:.3g} of {ledger.cap_epsilon:.3g}.",
        chart=figures.waterfall(rows, ledger.cap_epsilon),
        rows=rows,
        wide=True,
    )


def _having(metrics: Metrics, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, kinds[kind]) for name, kinds in metrics.items() if kind in kinds and name not in BASELINES]


def _list(start: str, rows: Rows, *keys: str, value: str) -> str:
    items = [f"{' '.join(_word(row[key]) for key in keys)} {row[value]:.3g}" for row in rows]
    return f"{start}: {'; '.join(items)}."


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
