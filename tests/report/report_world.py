"""A made-up asset, measured and accounted for by small seeded functions: what the report's tests draw."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from palimpsest.privacy.ledger.records import Cap
from palimpsest.privacy.ledger.summary import ChargeLine, LedgerSummary, UsedOrder
from palimpsest.privacy.receipt import Curve, Group, QueryLine, Receipt
from tests.receipts import a_line, a_receipt

LABELS = ("billing", "delivery", "device fault", "account", "returns")
ORDERS = (3, 4, 5, 6, 7, 10, 13)
DELTA = 2.35e-5
MEMBERS = 600


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
        own = compared(variant, accuracy + shift, public + shift, real + shift)
        found[name] = _evaluator(draw, accuracy + shift, labels) | own
    return {"variant": variant, "zone": "internal", "rows": 4000, "test_rows": 1000, "evaluators": found}


def compared(variant: str, accuracy: float, public: float, real: float) -> dict[str, Any]:
    """Retention, and for what is no baseline the gap closed: null where the baselines are too close."""
    kept = {"retention": _around(accuracy / real, 0.02)}
    if variant in ("real", "public_only"):
        return kept
    return kept | {"gap_closed": _around((accuracy - public) / (real - public), 0.06) if real - public > 0.05 else None}


def _around(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def _evaluator(draw: np.random.Generator, accuracy: float, labels: tuple[str, ...]) -> dict[str, Any]:
    def scores() -> dict[str, float]:
        f1 = float(np.clip(accuracy + draw.normal(0, 0.05), 0, 1))
        return {"precision": f1, "recall": f1, "f1": f1, "support": int(draw.integers(60, 400))}

    return {
        "accuracy": accuracy,
        "low": accuracy - 0.024,
        "high": accuracy + 0.022,
        "per_seed": (accuracy + draw.normal(0, 0.004, 3)).tolist(),
        "per_class": {label: scores() for label in labels},
        "ece": 0.04,
    }


def membership(variant: str, shift: float, claim: float | None, seed: int) -> dict[str, Any]:
    """Attacks on Gaussian scores that differ by `shift` between members and non-members."""
    draw = np.random.default_rng(seed)
    attacks = {name: _attack(draw, shift * power) for name, power in (("loss", 0.7), ("reference", 1.0))}
    lower = max(0.0, 2 * shift - 0.2)
    return {
        "variant": variant,
        "zone": "internal",
        "members": MEMBERS,
        "nonmembers": MEMBERS,
        "control": {"auc": 0.507, "low": 0.474, "high": 0.54, "null_low": 0.445, "null_high": 0.555, "passed": True},
        "attacks": attacks,
        "epsilon_lower": {
            "value": lower,
            "method": "steinke",
            "guesses": 200,
            "correct": 108,
            "delta": DELTA,
            "alpha": 0.05,
        },
        "eps_max": 4.1,
        "verdict": "not refuted" if claim else "inconclusive",
        "claim": claim,
    }


def _attack(draw: np.random.Generator, shift: float) -> dict[str, Any]:
    members, others = draw.normal(shift, 1, MEMBERS), draw.normal(0, 1, MEMBERS)
    cuts = np.quantile(np.concatenate([members, others]), np.linspace(1, 0, 150))
    roc = [[float(np.mean(others >= cut)), float(np.mean(members >= cut))] for cut in cuts]
    auc = float(np.mean(members[:, None] > others[None, :]))
    count = int(np.sum(members > np.quantile(others, 0.99)))
    rate = count / MEMBERS
    tpr = {"count": count, "n": MEMBERS, "rate": rate, "low": rate * 0.6, "high": rate * 1.5}
    advantage = max(found - accused for accused, found in roc)
    return {"auc": auc, "low": auc - 0.03, "high": auc + 0.03, "tpr_at_1pct": tpr, "roc": roc, "advantage": advantage}


def ngrams(variant: str, memorised: float, seed: int) -> dict[str, Any]:
    """Overlap that falls with n, plus a share that only the members have."""
    draw = np.random.default_rng(seed)
    return {
        "variant": variant,
        "zone": "internal",
        "orders": {str(n): _order(draw, n, memorised) for n in ORDERS},
        "longest_span": {"train": 17, "holdout": 12, "public": 11},
        "verbatim_rows": {"train": 2 if memorised else 0, "holdout": 0, "public": 0},
    }


def _order(draw: np.random.Generator, n: int, memorised: float) -> dict[str, Any]:
    total, shared = 50_000 - 2_000 * n, 0.95 * math.exp(-0.42 * (n - 1))
    rates = {
        "train": shared + memorised / n + float(draw.normal(0, 0.001)),
        "holdout": shared,
        "public": shared * 0.8,
    }
    found = {name: {"count": int(abs(rate) * total), "total": total, "rate": abs(rate)} for name, rate in rates.items()}
    gain = found["train"]["rate"] - found["holdout"]["rate"]
    return found | {
        "excess": {"value": gain, "low": gain - 0.004, "high": gain + 0.004, "p": 0.3 if not memorised else 0.001}
    }


def facts(variant: str, half: float, leaked: int, seed: int) -> dict[str, Any]:
    """Population facts carried with a chance that passes one half at support `half`."""
    draw = np.random.default_rng(seed)
    supports = np.unique(np.geomspace(3, 300, 60).astype(int))
    population = [
        {"id": f"fact-{i}", "support": int(s), "carried": bool(draw.random() < s / (s + half)), "mentions": int(s // 3)}
        for i, s in enumerate(supports)
    ]
    return {
        "variant": variant,
        "zone": "internal",
        "population": population,
        "carried": sum(fact["carried"] for fact in population),
        "total": len(population),
        "individual": {"leaked": leaked, "total": 250},
        "canaries": {"leaked": leaked // 10, "planted": 20},
    }


def in_context(
    variant: str, accuracies: dict[int, float], zero: float | None = 0.42, judges: bool = True, lacks: str = "context"
) -> dict[str, Any]:
    """Answers behind some numbers of demonstrations, as `incontext_eval` writes them; what is NaN `lacks` something."""

    def shot(number: int, accuracy: float) -> dict[str, Any]:
        fits = not math.isnan(accuracy)
        return {
            "shots": number,
            "fits": fits,
            "lacks": None if fits else lacks,
            "needs": 40 + 30 * number,
            "accuracy": _around(accuracy, 0.05) if fits else None,
            "per_draw": [accuracy + 0.01 * step for step in (range(-2, 3) if number else [0])] if fits else [],
            "deviation": math.sqrt(0.00025) if fits and number else None,
            "gain": _around(accuracy - zero, 0.04) if fits and number and zero is not None else None,
        }

    return {
        "variant": variant,
        "zone": "internal",
        "task": "classify",
        "rows": 4000,
        "items": 200,
        "items_cut": 3,
        "context": 512,
        "judges": judges,
        "note": "This model can judge." if judges else "This model cannot judge demonstrations.",
        "zero_shot": shot(0, math.nan if zero is None else zero),
        "shots": [shot(number, accuracy) for number, accuracy in accuracies.items()],
    }


def structure(variant: str, parsed: int, valid: int, total: int = 200) -> dict[str, Any]:
    """Rows of task json, as `structure_audit` writes them."""
    rates = {"parsed": _rate(parsed, total), "valid": _rate(valid, total)}
    return {"variant": variant, "zone": "dp", **rates}


def _rate(count: int, total: int) -> dict[str, Any]:
    rate = count / total if total else math.nan
    return {"count": count, "n": total, "rate": rate, "low": max(0, rate - 0.05), "high": min(1, rate + 0.05)}


def generation(variant: str) -> dict[str, Any]:
    """What `private_predict` counts."""
    removed = {"short": 0, "near": 27, "public": 4}
    counts = {"drawn": 412, "removed": removed, "rows": 381, "tokens": 12_345, "private_share": 0.837}
    return {"variant": variant, "zone": "dp", **counts}


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
    for name, top in (("predict3", 0.55), ("real", 0.6), ("public_only", 0.47)):
        metrics[name]["incontext"] = in_context(name, {2: top - 0.04, 4: top - 0.02, 8: top, 16: math.nan})
    return {"metrics": metrics, "receipts": receipts}


def evolution(variant: str, values: list[float], floor: float = 0.06) -> dict[str, Any]:
    """Distances of each round, as `evolution_audit` writes them."""
    rounds = [
        [{"name": name, "value": scale * value, "floor": scale * floor, "n": 900} for name, scale in _SCALES.items()]
        for value in values
    ]
    return {"variant": variant, "zone": "internal", "rounds": rounds}


_SCALES = {"frechet": 1.0, "energy": 0.3, "wasserstein": 4.0}


def turnouts(
    variance: float, selected: int, readable: int, labels: tuple[str, ...] = LABELS[:2]
) -> list[dict[str, Any]]:
    """Exact votes and parents of one round: all labels together, then each, which has its share."""
    share = len(labels)
    whole = {"candidates": 300 * share, "mean": 1.5, "variance": variance, "selected": selected, "readable": readable}
    parts = {"candidates": 300, "selected": selected // share, "readable": readable // share}
    each = [whole | parts | {"label": label, "variance": variance + place} for place, label in enumerate(labels)]
    return [{"label": None} | whole, *each]


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
    metrics, counts = world_metrics(), {"zone": "dp", "drawn": 900, "removed": {"length": 9}, "rows": 891}
    metrics |= {name: {"generation": {"variant": name, **counts}} for name in ("words", "embed3", "deep3")}
    metrics["words"]["utility"] = utility("words", 0.79, 9)
    metrics["embed3"]["generation"] |= {
        "rounds": 3,
        "kept_samples": [{"text": "the parcel came late", "label": "delivery", "perplexity": 41.5}],
        "unreadable_samples": [{"text": "late parcel the the <b>", "label": None, "perplexity": 987.0}],
    }
    metrics["embed3"]["evolution"] = evolution("embed3", [0.3, 0.2, 0.15]) | {
        "parents": [[], *evolution("embed3", [0.18, 0.12], 0.09)["rounds"]],
        "votes": [turnouts(12.0, 60, 60), turnouts(6.0, 48, 30), turnouts(2.0, 0, 0)],
    }
    tops = {"words": 0.58, "embed3": 0.55, "deep3": 0.5, "public_only": 0.47, "real": 0.6, "inf": 0.59}
    for name, top in tops.items():
        metrics[name]["incontext"] = in_context(name, {1: top - 0.06, 6: top})
    return {"metrics": metrics, "receipts": receipts}


def decoder(cosine: float = 0.914) -> dict[str, Any]:
    """What `decoder_pretrain` measures."""
    scores = {"cosine": cosine, "nearest": 0.981, "token_f1": 0.672, "bleu": 0.318, "exact": 0.123, "rows": 500}
    samples = [{"given": "Prices rose again.", "decoded": "Prices have risen again.", "cosine": 0.93}]
    body = {"zone": "public", "encoder": "small", "parameters": 5_400_000, "reconstruction": scores}
    return body | {"readable_share": 0.875, "samples": samples}


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
    counts = {"zone": "dp", "drawn": 900, "removed": {"length": 9}, "rows": 891}
    asked = {"rounds": 2, "requests": 4321, "unusable": {"empty": 3}, "tokens": 98_765}
    metrics["evolve3"] = {
        "generation": {"variant": "evolve3", **counts, **asked},
        "evolution": evolution("evolve3", [0.3, 0.2]),
    }
    metrics["pick3"] = {"generation": {"variant": "pick3", **counts}}
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
            "membership": membership("inf", 1.1, None, 12),
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
    drawn = {method: draw.normal(seed, 10.0**seed, (2, count)).round(3).tolist() for method in methods}
    labels = [LABELS[index] for index in draw.integers(0, len(LABELS), count)]
    spread = {"low": accuracy - 0.03, "high": accuracy + 0.03}
    return {
        "model": name,
        "zone": "internal",
        "separation": {"accuracy": accuracy, **spread, "per_seed": [accuracy] * 3, "chance": 0.24},
        "lm_loss": 3.5,
        "projections": {method: {"x": x, "y": y, "label": labels} for method, (x, y) in drawn.items()},
    }


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
        head="9f2c" * 16,
        entries=11,
        verified=True,
        after_loss=False,
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


def text_membership(variant: str, shift: float, claim: float | None, seed: int) -> dict[str, Any]:
    """Attacks on the rows alone, with the phantom test beside them."""
    orders = {
        str(n): {"features": 900 * n, "train": rate(12 // n, MEMBERS), "holdout": rate(9 // n, MEMBERS), "p": 0.3}
        for n in (1, 2)
    }
    return membership(variant, shift, claim, seed) | {"phantom": {"orders": orders, "p": 0.6}}


def rate(count: int, n: int) -> dict[str, Any]:
    """A share with some interval."""
    return {"count": count, "n": n, "rate": count / n, "low": max(0.0, count / n - 0.01), "high": count / n + 0.01}


def memorisation(variant: str, copies: int) -> dict[str, Any]:
    """Copies of members, one personal value, and secrets."""

    def contrast(exposed: int, control: int) -> dict[str, Any]:
        excess = {"value": (exposed - control) / MEMBERS, "low": -0.01, "high": 0.02, "p": 0.4}
        return {"exposed": rate(exposed, MEMBERS), "control": rate(control, MEMBERS), "excess": excess}

    def repeats(count: int) -> dict[str, Any]:
        sides = {side: rate(count, 4000) for side in ("train", "holdout", "public")}
        return sides | {"excess": {"value": 0.0, "low": -0.1, "high": 0.1}, "records": contrast(count, 0)}

    return {
        "variant": variant, "zone": "internal", "near_duplicates": repeats(copies),
        "personal": {"email": repeats(0), "name": repeats(1)},
        "secrets": {"exact": contrast(copies, 0), "near": contrast(copies, 0)},
    }  # fmt: skip


def anonymity(variant: str, risk: float) -> dict[str, Any]:
    """Two attacks, one that a guess beats."""

    def evidence(criterion: str, informed: bool) -> dict[str, Any]:
        return {
            "criterion": criterion, "main": rate(60, MEMBERS), "control": rate(50, MEMBERS), "baseline": 0.05,
            "risk": _around(risk, 0.03), "cap": 0.9, "informed": informed,
        }  # fmt: skip

    attacks = {"singling_out": evidence("singling out", True), "linkability": evidence("linkability", False)}
    return {"variant": variant, "zone": "internal", "members": MEMBERS, "nonmembers": MEMBERS, "attacks": attacks}


def fidelity(variant: str, value: float) -> dict[str, Any]:
    """A distance, a share, and a measure that cannot tell public text from private."""

    def measured(better: str, own: float, floor: float, public: float | None) -> dict[str, Any]:
        return {
            "better": better, "n": 500, "value": own, "unseen": own, "public": public, "floor": floor,
            "floor_low": floor - 0.01, "floor_high": floor + 0.01,
        }  # fmt: skip

    measures = {
        "frechet": measured("lower", value, 0.2, 0.9), "coverage": measured("higher", 0.6, 0.9, 0.3),
        "precision": measured("higher", 0.7, 0.9, 0.89), "length": measured("lower", 0.7, 0.4, None),
    }  # fmt: skip
    return {"variant": variant, "zone": "internal", "measures": measures}


def world_of_audits() -> dict[str, Any]:
    """The world with the audits of its rows."""
    metrics = world_metrics()
    for number, name in enumerate(("dp3", "inf")):
        metrics[name] |= {
            "text_membership": text_membership(name, 0.1 + number, None if number else 2.98, 9 + number),
            "memorisation": memorisation(name, 30 * number), "anonymity": anonymity(name, 0.1 + 0.4 * number),
            "fidelity": fidelity(name, 0.5 + 0.1 * number),
        }  # fmt: skip
    return {"metrics": metrics}


def whole_world(unit: str = "record") -> dict[str, Any]:
    """Everything that a page may show, of receipts and a ledger of one unit of privacy."""
    metrics: dict[str, dict[str, Any]] = {}
    receipts: dict[str, Receipt] = {}
    for part in (world_of_writing(), world_of_choosing(), world_of_embedding(), world_of_audits()):
        receipts |= part.get("receipts", {})
        for variant, found in part["metrics"].items():
            metrics.setdefault(variant, {}).update(found)
    own = {name: replace(receipt, unit=unit) for name, receipt in receipts.items()}
    return {"metrics": metrics, "receipts": own, "ledger": world_ledger(unit), "facts": world_schema(unit)}
