"""A made-up asset, measured and accounted for by small seeded functions: what the report's tests draw."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import vl_convert
from scipy.stats import norm

from palimpsest.audit import ngrams as ngrams_audit
from palimpsest.audit.anonymity import AnonymityAudit, Evidence
from palimpsest.audit.facts import FactAudit, PopulationFactAudit, support_bins
from palimpsest.audit.fidelity import FidelityAudit, Measured, diversities, length_bins
from palimpsest.audit.fields import FieldsAudit, Learned, TableDistance
from palimpsest.audit.groups import LabelFit
from palimpsest.audit.membership import Attack, Control, EpsilonLower, MembershipAudit
from palimpsest.audit.memorisation import Contrast, Extraction, MemorisationAudit, Repeats
from palimpsest.audit.ngrams import NgramAudit, OrderOverlap, PerReference
from palimpsest.audit.reconstruction import DecodedText, DecoderScores
from palimpsest.audit.statistics import Estimate, Interval, Rate
from palimpsest.audit.structure import StructureAudit
from palimpsest.audit.text_membership import Phantom, PhantomOrder, TextMembershipAudit
from palimpsest.audit.utility import ClassifierAudit, LabelScores, Scored, UtilityScores
from palimpsest.methods.shared.base import GenerationCounts, ScoredText
from palimpsest.privacy.ledger.records import Cap
from palimpsest.privacy.ledger.summary import ChargeLine, LedgerSummary, UsedOrder
from palimpsest.privacy.ledger.total import Total
from palimpsest.privacy.receipt import Curve, Group, QueryLine, Receipt
from palimpsest.report.drawing import Chart
from palimpsest.report.results import BASELINES, Results
from palimpsest.report.sections.base import Page
from palimpsest.report.summary import summarise
from palimpsest_lab.audits.clipping import ClippingAudit
from palimpsest_lab.audits.familiarity import Familiarity, Sight
from palimpsest_lab.audits.incontext import Answered, InContextAnswers
from palimpsest_lab.audits.prompt_membership import BINS, Density, PromptControl, PromptMembershipAudit
from palimpsest_lab.audits.rounds import Distance, EvolutionAudit, Turnout
from palimpsest_lab.audits.separation import Projection, Separation, SeparationAudit
from tests.receipts import a_line, a_receipt

LABELS = ("billing", "delivery", "device fault", "account", "returns")
ORDERS = (3, 4, 5, 6, 7, 10, 13)
DELTA = 2.35e-5
MEMBERS = 600


def results(
    metrics: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Any] | None = None,
    decoders: Mapping[str, Any] | None = None,
) -> Results:
    """What the page reads, of variant -> kind -> document."""
    found: dict[str, dict[str, Any]] = {"models": dict(models or {}), "decoders": dict(decoders or {})}
    for variant, kinds in metrics.items():
        for kind, document in kinds.items():
            found.setdefault(kind, {})[variant] = document
    return Results(found)


def page_of(
    metrics: Mapping[str, Mapping[str, Any]], receipts: Mapping[str, Receipt], models: Mapping[str, Any] | None = None
) -> Page:
    """What the sections draw from."""
    found = results(metrics, models)
    return Page(summarise(found, receipts, world_ledger()), found, receipts, world_ledger())


def svg(chart: Chart) -> str:
    """The chart as its own library draws it; no number in it is broken."""
    drawn = str(vl_convert.vegalite_to_svg(chart.properties(width=600).to_dict()))
    assert "NaN" not in drawn
    return drawn


def gaussian_curve(mu: float, points: int = 101) -> dict[str, list[float]]:
    """The trade-off curve of one Gaussian mechanism: beta = Phi(Phi^-1(1 - alpha) - mu)."""
    alpha = np.concatenate([[0.0], np.geomspace(1e-5, 1, points)])
    return {"alpha": alpha.tolist(), "beta": norm.cdf(norm.ppf(1 - alpha) - mu).tolist()}


def receipt(variant: str, epsilon: float | None, seed: int = 0, **changes: Any) -> Receipt:
    """A release with this proved epsilon, or a reference run where it is None."""
    purpose, curve = "reference" if epsilon is None else "release", gaussian_curve((epsilon or 99.0) / 4.4)
    lines = [query(variant, name, f"{seed}{mark}", purpose=purpose) for name, mark in _ASKED.items()]
    made = a_receipt(
        variant=variant,
        model=variant,
        method="dp_lm",
        purpose=purpose,
        epsilon_target=None if epsilon is None else float(math.ceil(epsilon)),
        delta=DELTA,
        epsilon=epsilon,
        epsilon_rdp=None if epsilon is None else epsilon * 1.06,
        accountant="pld",
        queries=tuple(lines),
        plan={"noise_multiplier": 1.1, "steps": 400},
        group=tuple(Group(k, None if epsilon is None else k * epsilon) for k in (1, 2, 3, 5, 10)),
        curve=Curve(tuple(curve["alpha"]), tuple(curve["beta"])),
    )
    return replace(made, **changes)


_ASKED = {"label_histogram": "a7c1", "dp_sgd": "f03e"}


def query(
    model: str, name: str, charge: str, partition: tuple[str, str] | None = None, purpose: str = "release", **more: Any
) -> QueryLine:
    """One charge of a receipt."""
    return a_line(charge, name=name, model=model, partition=partition, purpose=purpose, **more)


def utility(
    variant: str,
    accuracy: float,
    seed: int,
    labels: tuple[str, ...] = LABELS,
    public: float = 0.604,
    real: float = 0.912,
) -> dict[str, Any]:
    """Scores of both evaluators around one accuracy, compared with those of the two baselines."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, shift in (("minilm_lr", 0.02), ("tfidf_lr", -0.01)):
        own = _scored(draw, accuracy + shift, labels)
        found[name] = compared(own, variant, accuracy + shift, public + shift, real + shift)
    fit = None if variant in BASELINES else LabelFit(Estimate(0.8, 0.75, 0.85), Estimate(0.9, 0.88, 0.92))
    return UtilityScores(4000, 1000, found, fit).to_json(variant)


def classifier(name: str, accuracy: float, beside: str | None = "minilm_lr") -> dict[str, Any]:
    """A classifier that private rows trained, as `classifier_eval` writes it."""
    scored = replace(_scored(np.random.default_rng(5), accuracy, LABELS), retention=_around(accuracy / 0.912, 0.02))
    return ClassifierAudit(1000, 2.97, beside, scored).to_json(name)


def compared(own: Scored, variant: str, accuracy: float, public: float, real: float) -> Scored:
    """With retention, and for what is no baseline the gap closed: None where the baselines are too close."""
    kept = replace(own, retention=_around(accuracy / real, 0.02))
    if variant in ("real", "public_only", "public_lm"):
        return kept
    kept = replace(kept, over_public_lm=_around(accuracy / 0.7, 0.03))
    gap = _around((accuracy - public) / (real - public), 0.06) if real - public > 0.05 else None
    return replace(kept, gap_closed=gap, compared=True)


def _around(value: float, half: float) -> Estimate:
    return Estimate(value, value - half, value + half)


def _scored(draw: np.random.Generator, accuracy: float, labels: tuple[str, ...]) -> Scored:
    def scores() -> LabelScores:
        f1 = float(np.clip(accuracy + draw.normal(0, 0.05), 0, 1))
        return LabelScores(f1, f1, f1, int(draw.integers(60, 400)))

    per_seed = tuple((accuracy + draw.normal(0, 0.004, 3)).tolist())
    return Scored(
        accuracy=Estimate(accuracy, accuracy - 0.024, accuracy + 0.022),
        per_seed=per_seed,
        correct=tuple(round(1000 * one) for one in per_seed),
        per_class={label: scores() for label in labels},
        ece=0.04,
    )


def membership(variant: str, shift: float, claim: float | None, seed: int, right: int = 108) -> dict[str, Any]:
    """Attacks on Gaussian scores that differ by `shift` between members and non-members.

    So many of 200 guesses are `right`: 200 refute a claim of 3.
    """
    return _attacked(shift, claim, seed, right).to_json(variant)


CONTROL = Control(Estimate(0.507, 0.474, 0.54), Interval(0.445, 0.555))


def _attacked(shift: float, claim: float | None, seed: int, right: int) -> MembershipAudit:
    draw = np.random.default_rng(seed)
    correct = {"loss": 104, "reference": right}
    found = MembershipAudit(
        members=MEMBERS,
        nonmembers=MEMBERS,
        control=CONTROL,
        attacks={name: _attack(draw, shift * power) for name, power in (("loss", 0.7), ("reference", 1.0))},
        epsilon_lower=EpsilonLower(0.0, "reference", 2 * MEMBERS, 200, right, DELTA, 0.05, correct),
        eps_max=0.0,
        claim=claim,
        planted={"loss": _around(0.97, 0.02), "reference": _around(0.51, 0.07)},
    )
    return found.among(1)


def prompt_membership(variant: str, known: float) -> dict[str, Any]:
    """The attack on prompts, by a judge that knows its own demonstration by so many deviations."""
    draw, judged = np.random.default_rng(0), _attacked(0.0, 2.98, 3, 108)
    control = _attack(draw, known)
    even, high = (tuple(counts) for counts in ([3] * BINS, [0] * (BINS - 1) + [60]))
    judged = replace(judged, attacks={"prompt": judged.attacks["loss"]})
    shown = PromptControl(control, Density(high, even))
    return PromptMembershipAudit(judged, Density(even, even), shown).to_json(variant)


def _attack(draw: np.random.Generator, shift: float) -> Attack:
    members, others = draw.normal(shift, 1, MEMBERS), draw.normal(0, 1, MEMBERS)
    cuts = np.quantile(np.concatenate([members, others]), np.linspace(1, 0, 150))
    roc = np.array([[float(np.mean(others >= cut)), float(np.mean(members >= cut))] for cut in cuts])
    auc = float(np.mean(members[:, None] > others[None, :]))
    count = int(np.sum(members > np.quantile(others, 0.99)))
    found = count / MEMBERS
    tpr = Rate(count, MEMBERS, found * 0.6, found * 1.5)
    return Attack(Estimate(auc, auc - 0.03, auc + 0.03), tpr, roc, float((roc[:, 1] - roc[:, 0]).max()))


def ngrams(variant: str, memorised: float, seed: int) -> dict[str, Any]:
    """Overlap that falls with n, plus a share that only the members have."""
    draw = np.random.default_rng(seed)
    verbatim = PerReference(2 if memorised else 0, 0, 0)
    orders = {n: _order(draw, n, memorised) for n in ORDERS}
    return NgramAudit(orders, PerReference(17, 12, 11), verbatim, "record").to_json(variant)


def _order(draw: np.random.Generator, n: int, memorised: float) -> OrderOverlap:
    total, shared = 50_000 - 2_000 * n, 0.95 * math.exp(-0.42 * (n - 1))
    rates = (shared + memorised / n + float(draw.normal(0, 0.001)), shared, shared * 0.8)
    train, holdout, public = (ngrams_audit.Share(int(abs(rate) * total), total) for rate in rates)
    gain = train.rate - holdout.rate
    whole = ngrams_audit.Share(int(min(1.0, 1.3 * train.rate) * total), total)
    return OrderOverlap(train, holdout, public, whole, _around(gain, 0.004), 0.3 if not memorised else 0.001, 0.004)


def facts(variant: str, half: float, leaked: int, seed: int) -> dict[str, Any]:
    """Population facts carried with a chance that passes one half at support `half`."""
    draw = np.random.default_rng(seed)
    supports = np.unique(np.geomspace(3, 300, 60).astype(int))
    population = tuple(
        PopulationFactAudit(f"fact-{i}", int(s), int(s // 3) if draw.random() < s / (s + half) else 0)
        for i, s in enumerate(supports)
    )
    return stated(population, leaked).to_json(variant)


def stated(population: tuple[PopulationFactAudit, ...], leaked: int = 0) -> FactAudit:
    """An audit of these facts."""
    return FactAudit(population, support_bins(population), leaked, 250, leaked // 10, 20, 3)


def in_context(
    variant: str,
    accuracies: dict[int, float],
    zero: float | None = 0.42,
    judges: bool = True,
    lacks: Literal["context", "demonstrations"] = "context",
) -> dict[str, Any]:
    """Answers behind some numbers of demonstrations; what is NaN `lacks` something."""

    def shot(number: int, accuracy: float) -> Answered:
        if math.isnan(accuracy):
            return Answered(number, 40 + 30 * number, lacks, None, (), None, None)
        return Answered(
            shots=number,
            needs=40 + 30 * number,
            lacks=None,
            accuracy=_around(accuracy, 0.05),
            per_draw=tuple(accuracy + 0.01 * step for step in (range(-2, 3) if number else [0])),
            deviation=math.sqrt(0.00025) if number else None,
            gain=_around(accuracy - zero, 0.04) if number and zero is not None else None,
        )

    shots = tuple(shot(number, accuracy) for number, accuracy in accuracies.items())
    first = shot(0, math.nan if zero is None else zero)
    return InContextAnswers("classify", 4000, 200, 3, 512, judges, first, shots).to_json(variant)


def structure(variant: str, parsed: int, valid: int, total: int = 200) -> dict[str, Any]:
    """Rows of task json."""
    return StructureAudit(_rate(parsed, total), _rate(valid, total)).to_json(variant, "dp")


def fields(variant: str) -> dict[str, Any]:
    """Fields beside the texts of a variant."""
    table = TableDistance(("label", "priority"), 12, 0.081, 0.052, 0.117, 0.344)
    right = [Estimate(value, value - 0.03, value + 0.03) for value in (0.61, 0.70, 0.87)]
    learned = Learned("priority", 4, 0.44, *right)
    return FieldsAudit(300, 2900, 900, 300, (table,), (learned,)).to_json(variant)


def _rate(count: int, total: int) -> Rate:
    rate = count / total if total else math.nan
    return Rate(count, total, max(0, rate - 0.05), min(1, rate + 0.05))


def generation(variant: str) -> dict[str, Any]:
    """What a method counts that writes while it reads private rows."""
    removed = {"short": 0, "near": 27, "public": 4}
    return GenerationCounts(412, 381, removed, tokens=12_345, private_share=0.837).to_json(variant, "dp")


COUNTED = GenerationCounts(drawn=900, rows=891, removed={"length": 9})


def predicted(variant: str, epsilon: float | None = 3.0) -> Receipt:
    """The receipt of a variant of method predict: two waves of batches beside each other."""
    parts = [query(variant, f"predict wave {i}", f"9{i}", ("keyed batches", f"{i} to {i + 1}")) for i in range(2)]
    plan = {"clipping": "difference", "clip": 0.731, "tokens": 96, "batches": 40, "batch_size": 64, "waves": 2}
    return receipt(variant, epsilon, method="predict", accountant="zcdp", queries=tuple(parts), plan=plan)


def shots_written(variant: str) -> Receipt:
    """The receipt of a variant of method fewshot, whose plan has no batches."""
    plan = {"noise_multiplier": 0.9, "steps": 160, "sampling_rate": 0.02, "expected_batch": 40.0, "prompts": 10}
    return receipt(variant, 3.0, method="fewshot", plan=plan)


def world_of_writing() -> dict[str, dict[str, Any]]:
    """Metrics and receipts of the world with a variant that was written, asked behind demonstrations, and is JSON."""
    metrics, receipts = world_metrics(), world_receipts() | {"predict3": predicted("predict3")}
    metrics["predict3"] = {"generation": generation("predict3"), "structure": structure("predict3", 190, 171)}
    metrics["predict3"]["fields"] = fields("predict3")
    for name, top in (("predict3", 0.55), ("real", 0.6), ("public_only", 0.47)):
        metrics[name]["incontext"] = in_context(name, {2: top - 0.04, 4: top - 0.02, 8: top, 16: math.nan})
    return {"metrics": metrics, "receipts": receipts}


def evolution(variant: str, values: list[float], floor: float = 0.06) -> dict[str, Any]:
    """Distances of each round of texts."""
    return EvolutionAudit.of_texts([distances(value, floor) for value in values]).to_json(variant)


def distances(value: float, floor: float = 0.06) -> tuple[Distance, ...]:
    """Every measure of one set of texts."""
    return tuple(Distance(name, scale * value, scale * floor, 900) for name, scale in _SCALES.items())


_SCALES = {"frechet": 1.0, "energy": 0.3, "wasserstein": 4.0}


def turnouts(
    variance: float, selected: int, readable: int, labels: tuple[str, ...] = LABELS[:2]
) -> tuple[Turnout, ...]:
    """Exact votes and parents of one round: all labels together, then each, which has its share."""
    share = len(labels)
    whole = Turnout(None, 300 * share, 1.5, variance, selected, readable)
    return whole, *(
        Turnout(label, 300, 1.5, variance + place, selected // share, readable // share)
        for place, label in enumerate(labels)
    )


def embedded(variant: str) -> Receipt:
    """The receipt of a variant of method embed."""
    plan = {"sigma": 2.75, "rounds": 3, "rows": 900, "neighbours": 1}
    return receipt(variant, 2.99, method="embed", plan=plan)


def world_of_embedding() -> dict[str, dict[str, Any]]:
    """Metrics and receipts of the world with `embed`, its two baselines, and answers behind demonstrations."""
    receipts = world_receipts() | {
        "embed3": embedded("embed3"),
        "deep3": receipt("deep3", 3.0, method="sentdp", plan={"scale": 0.87, "rows": 900}),
        "words": receipt(
            "words", None, method="custext", plan={"token_epsilon": 3.0, "neighbours": 20, "vocabulary": 20_000}
        ),
    }
    metrics = world_metrics()
    metrics |= {name: {"generation": COUNTED.to_json(name, "dp")} for name in ("words", "embed3", "deep3")}
    metrics["words"]["utility"] = utility("words", 0.79, 9)
    kept, dropped = (
        ScoredText("the parcel came late", "delivery", 41.5),
        ScoredText("late parcel the the <b>", None, 987.0),
    )
    evolved = replace(COUNTED, rounds=3, kept_samples=(kept,), unreadable_samples=(dropped,))
    metrics["embed3"]["generation"] = evolved.to_json("embed3", "dp")
    rounds = EvolutionAudit(
        populations=(distances(0.3), distances(0.2), distances(0.15)),
        parents=((), distances(0.18, 0.09), distances(0.12, 0.09)),
        votes=(turnouts(12.0, 60, 60), turnouts(6.0, 48, 30), turnouts(2.0, 0, 0)),
    )
    metrics["embed3"]["evolution"] = rounds.to_json("embed3")
    metrics["judge3"] = {"classifier": classifier("judge3", 0.74)}
    tops = {"words": 0.58, "embed3": 0.55, "deep3": 0.5, "public_only": 0.47, "real": 0.6, "inf": 0.59}
    for name, top in tops.items():
        metrics[name]["incontext"] = in_context(name, {1: top - 0.06, 6: top})
    return {"metrics": metrics, "receipts": receipts}


def decoder(cosine: float = 0.914) -> dict[str, Any]:
    """What a decoder is worth."""
    sample = DecodedText("Prices rose again.", "Prices have risen again.", 0.93)
    return DecoderScores(
        encoder="small", parameters=5_400_000, rows=500, cosine=cosine, nearest=0.981, token_f1=0.672, bleu=0.318,
        exact=0.123, readable_share=0.875, samples=(sample,),
    ).to_json()  # fmt: skip


def evolved(variant: str) -> Receipt:
    """The receipt of a variant of method evolve."""
    plan = {"sigma": 3.25, "rounds": 3, "rows": 900, "candidates": 2700, "neighbours": 10, "means_sigma": 1.9}
    return receipt(variant, 3.0, method="evolve", plan=plan)


def selected(variant: str) -> Receipt:
    """The receipt of a variant of method select, where nobody votes."""
    return receipt(variant, 3.0, method="select", plan={"sigma": 1.36, "rows": 900})


def world_of_choosing() -> dict[str, dict[str, Any]]:
    """Metrics and receipts of the world with a variant that was voted for by rounds, and one that was selected."""
    metrics, receipts = world_metrics(), world_receipts() | {"evolve3": evolved("evolve3"), "pick3": selected("pick3")}
    asked = replace(COUNTED, rounds=2, requests=4321, unusable={"empty": 3}, tokens=98_765)
    metrics["evolve3"] = {
        "generation": asked.to_json("evolve3", "dp"),
        "evolution": evolution("evolve3", [0.3, 0.2]),
    }
    metrics["pick3"] = {"generation": COUNTED.to_json("pick3", "dp")}
    return {"metrics": metrics, "receipts": receipts}


def world_metrics() -> dict[str, dict[str, Any]]:
    """dp3 and inf measured in every way; real and public_only for their utility alone."""
    return {
        "dp3": {
            "utility": utility("dp3", 0.812, 1),
            "membership": membership("dp3", 0.05, 2.98, 11),
            "ngrams": ngrams("dp3", 0.0, 21),
            "facts": facts("dp3", 30, 0, 31),
        },
        "inf": {
            "utility": utility("inf", 0.871, 2),
            "membership": membership("inf", 1.1, None, 12, 185),
            "ngrams": ngrams("inf", 0.09, 22),
            "facts": facts("inf", 6, 41, 32),
        },
        "real": {"utility": utility("real", 0.912, 3)},
        "public_only": {"utility": utility("public_only", 0.604, 4)},
    }


def audited(
    name: str, accuracy: float, seed: int, count: int = 40, methods: tuple[str, ...] = ("pca", "umap")
) -> dict[str, Any]:
    """The audit of one language model, with points at random."""
    draw = np.random.default_rng(seed)
    drawn = {method: draw.normal(seed, 10.0**seed, (2, count)).T for method in methods}
    labels = [LABELS[index] for index in draw.integers(0, len(LABELS), count)]
    found = Separation(_around(accuracy, 0.03), (accuracy,) * 3, 0.24, 400, 200)
    return SeparationAudit(found, 3.5, {name: Projection.of(xy, labels) for name, xy in drawn.items()}).to_json(name)


def world_models() -> dict[str, dict[str, Any]]:
    """The public language model and the two fitted ones, as `embedding_audit` writes them."""
    return {"base": audited("base", 0.61, 0), "dp3": audited("dp3", 0.78, 1), "inf": audited("inf", 0.9, 2)}


def world_receipts() -> dict[str, Receipt]:
    """One release and one reference run."""
    return {"dp3": receipt("dp3", 2.98, 1), "inf": receipt("inf", None, 2)}


def charge(seq: int, variant: str, query: str, state: str, purpose: str, epsilon: float | None) -> ChargeLine:
    """One line of the ledger."""
    return ChargeLine(
        id=f"{seq:032x}", seq=seq, stage="fit", variant=variant, query=query, state=state, purpose=purpose,
        partition=None, epsilon=epsilon, time=f"2031-05-04T10:0{seq}:00Z", run=1,
    )  # fmt: skip


def world_ledger(unit: str = "record") -> LedgerSummary:
    """A ledger with one charge of every kind."""
    return LedgerSummary(
        asset="tickets",
        unit=unit,
        delta=DELTA,
        cap_epsilon=8.0,
        caps=(Cap(8.0, "2031-05-04T10:00:00Z"),),
        filter=UsedOrder(6.0, 2.1, (6.0,)),
        spent_epsilon=3.62,
        left_epsilon=4.38,
        charges=(
            charge(1, "dp3", "label_histogram", "committed", "release", 0.31),
            charge(2, "dp3", "dp_sgd", "committed", "release", 2.95),
            charge(3, "inf", "dp_sgd", "committed", "reference", None),
            charge(4, "dp1", "dp_sgd", "refunded", "release", 1.0),
            charge(5, "dp1", "dp_sgd", "reserved", "release", 1.0),
        ),
        shown_head="9f2c" * 16,
        head="17ab" * 16,
        entries=11,
        verified=True,
        after_loss=False,
        total=Total("renyi", DELTA, 3.62, None, 8.0, raised=False, holds=True),
    )


def world_schema(unit: str = "record") -> dict[str, Any]:
    """The public facts, with a column that names persons where they are the unit."""
    persons = {"unit_column": "customer", "max_rows_per_unit": 3, "n_persons": 2000}
    return {
        "asset": "tickets", "task": "classify", "n_public": 5000, "label": "topic",
        "labels": dict.fromkeys(LABELS, ""), "unit_column": None, "max_rows_per_unit": 1, "n_persons": None,
    } | (persons if unit == "person" else {})  # fmt: skip


def world_stages() -> list[dict[str, Any]]:
    """A DAG with all three zones."""
    listed = [
        ("world", "Make the demo's tickets", "private", []),
        ("pretrain", "Train a small language model on public text", "public", []),
        ("preprocess", "Split private rows by fair coins", "private", ["world"]),
        ("fit@dp3", "Fit under a budget of epsilon 3", "private", ["preprocess", "pretrain"]),
        ("fit@inf", "Fit without noise, as a reference", "private", ["preprocess", "pretrain"]),
        ("sample@dp3", "Sample synthetic rows", "dp", ["fit@dp3"]),
        ("sample@inf", "Sample synthetic rows", "private", ["fit@inf"]),
        ("baseline", "Label public text by a fixed rule", "public", ["pretrain"]),
    ]
    for variant in ("dp3", "inf"):
        for name in ("utility", "membership", "ngrams", "facts"):
            listed.append((f"{name}@{variant}", f"Measure {name}", "private", [f"sample@{variant}", "preprocess"]))
    audits = [name for name, *_ in listed if "@" in name and name.split("@")[0] not in ("fit", "sample")]
    listed += [("report", "Write this page", "private", [*audits, "baseline"])]
    return [{"name": n, "desc": d, "zone": z, "deps": deps, "state": "cached"} for n, d, z, deps in listed]


def world_provenance() -> dict[str, str]:
    """Versions of nothing in particular."""
    return {"palimpsest": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "created": "2031-05-04T10:12:00Z"}


def text_membership(variant: str, shift: float, claim: float | None, seed: int, right: int = 108) -> dict[str, Any]:
    """Attacks on the rows alone, with the phantom test beside them."""
    orders = {n: PhantomOrder(900 * n, rate(12 // n, MEMBERS), rate(9 // n, MEMBERS), 0.3) for n in (1, 2)}
    return TextMembershipAudit(_attacked(shift, claim, seed, right), Phantom(orders)).to_json(variant)


def rate(count: int, n: int) -> Rate:
    """A share with some interval."""
    return Rate(count, n, max(0.0, count / n - 0.01), count / n + 0.01)


def memorisation(variant: str, copies: int) -> dict[str, Any]:
    """Copies of members, one personal value, and secrets."""

    def contrast(exposed: int, control: int) -> Contrast:
        excess = Estimate((exposed - control) / MEMBERS, -0.01, 0.02)
        return Contrast(rate(exposed, MEMBERS), rate(control, MEMBERS), excess, 0.4)

    def repeats(count: int) -> Repeats:
        train, holdout, public = (rate(count, 4000) for _ in range(3))
        return Repeats(train, holdout, public, Estimate(0.0, -0.1, 0.1), contrast(count, 0), rate(97, 100))

    secrets = Extraction(contrast(copies, 0), contrast(copies, 0))
    personal = {"email": repeats(0), "name": repeats(1)}
    return MemorisationAudit(repeats(copies), personal, secrets, "record").to_json(variant)


def anonymity(variant: str, risk: float) -> dict[str, Any]:
    """Two attacks, one that a guess beats."""

    def evidence(criterion: str, baseline: float) -> Evidence:
        return Evidence(
            criterion, rate(60, MEMBERS), rate(50, MEMBERS), baseline, _around(risk, 0.03), 0.9, _around(0.8, 0.1)
        )

    attacks = {"singling_out": evidence("singling out", 0.05), "linkability": evidence("linkability", 0.2)}
    return AnonymityAudit(MEMBERS, MEMBERS, CONTROL, attacks, None, "record").to_json(variant)


def fidelity(variant: str, value: float) -> dict[str, Any]:
    """A distance, a share, and a measure that cannot tell public text from private; lengths and labels."""

    def measured(better: str, own: float, floor: float, public: float | None) -> Measured:
        return Measured(better, 500, own, own, public, floor, floor - 0.01, floor + 0.01)

    measures = {
        "frechet": measured("lower", value, 0.2, 0.9), "coverage": measured("higher", 0.6, 0.9, 0.3),
        "precision": measured("higher", 0.7, 0.9, 0.89), "length": measured("lower", 0.7, 0.4, None),
    }  # fmt: skip
    texts = {side: ["word " * n for n in range(2, most)] for side, most in (("synthetic", 20), ("train", 30))}
    labels = {"synthetic": {"billing": 0.75, "returns": 0.25}, "train": {"billing": 0.6, "returns": 0.4}}
    audit = FidelityAudit(measures, diversities(texts), length_bins(texts), labels, 18)
    return audit.to_json(variant)


def world_of_audits() -> dict[str, Any]:
    """The world with the audits of its rows."""
    metrics = world_metrics()
    for number, name in enumerate(("dp3", "inf")):
        metrics[name] |= {
            "text_membership": text_membership(name, 0.1 + number, None if number else 2.98, 9 + number),
            "memorisation": memorisation(name, 30 * number), "anonymity": anonymity(name, 0.1 + 0.4 * number),
            "fidelity": fidelity(name, 0.5 + 0.1 * number),
        }  # fmt: skip
    metrics["public_lm"] = {"utility": utility("public_lm", 0.7, 5)}
    clipping = ClippingAudit((2.5, 5.0), (1.9, 1.8), (1.7, 0.01))
    metrics["base"] = {"familiarity": familiarity(), "clipping": clipping.to_json("base")}
    return {"metrics": metrics}


def familiarity() -> dict[str, Any]:
    """What a public model makes of test rows and of other text."""
    shared = {"5": _around(0.2, 0.02), "13": _around(0.01, 0.005)}
    test, public = (Sight(_around(bits, 0.1), _around(0.4, 0.01), shared) for bits in (1.2, 1.3))
    return Familiarity(test, public).to_json("base")


def whole_world(unit: str = "record") -> dict[str, Any]:
    """Everything that a page may show, of receipts and a ledger of one unit of privacy."""
    metrics: dict[str, dict[str, Any]] = {}
    receipts: dict[str, Receipt] = {}
    for part in (world_of_writing(), world_of_choosing(), world_of_embedding(), world_of_audits()):
        receipts |= part.get("receipts", {})
        for variant, found in part["metrics"].items():
            metrics.setdefault(variant, {}).update(found)
    metrics["dp3"]["prompt_membership"] = prompt_membership("dp3", 3.0)
    own = {name: replace(receipt, unit=unit) for name, receipt in receipts.items()}
    return {"metrics": metrics, "receipts": own, "ledger": world_ledger(unit), "facts": world_schema(unit)}
