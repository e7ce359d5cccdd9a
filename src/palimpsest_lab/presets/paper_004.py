"""Paper 004: embeddings that evolve by private votes, and the three baselines that it measures beside them."""

import math

from palimpsest.params.preset import OURS, Entry, Facts, Preset, Worked, reader

_ROW = "variants.embed<e>"
_PARENTS, _MOST_SHOTS = 30, 12
_EPSILON = Worked("ε", lambda facts: facts.epsilon)


def _rows(facts: Facts) -> int:
    return _PARENTS * max(1, facts.labels)


def _rows_per_label(facts: Facts) -> int:
    return math.ceil(_MOST_SHOTS / max(1, facts.labels))


_EVOLUTION = (
    Entry(f"{_ROW}.method", "embed", "Algorithm 1", "evolution of embeddings"),
    Entry(f"{_ROW}.epsilon", _EPSILON, "Table 1", "ε = 5"),
    Entry(f"{_ROW}.from", "small", OURS, "vec2text's two models are not here; a decoder is trained on public text"),
    Entry("decoders.small", {}, "Section 3.1", "a text decoder trained on public texts once"),
    Entry(f"{_ROW}.start", 1000, "Section 4.2", "1000 public texts; for each label (or `zero_shot`)"),
    Entry(f"{_ROW}.offspring", 3000, "Section 4.2", "sample 3000 for the next iteration; here for each label"),
    Entry(f"{_ROW}.parents", _PARENTS, "Section 4.2", "30 samples are selected; here for each label"),
    Entry(f"{_ROW}.keep_parents", False, "Algorithm 1", "offspring alone are voted for in the next round"),
    Entry(f"{_ROW}.rounds", 7, "Section 4.6", "the seventh iteration is the last one shown"),
    Entry(f"{_ROW}.selection.kind", "limited_domain", "Algorithm 3", "LimitedDomain; each record has one vote"),
    Entry(f"{_ROW}.selection.domain", 300, "Section 4.2", "domain size: 300"),
    Entry(f"{_ROW}.eda.smoothing", 0.1, "Section 4.2", "smoothing α: 0.1"),
    Entry(f"{_ROW}.eda.components", 1, "Algorithm 2", "one Gaussian"),
    Entry(f"{_ROW}.eda.best", 10, OURS, "R, whose spread counts, is not printed"),
    Entry(f"{_ROW}.readable.quantile", None, "Section 4.2", "the threshold is a number"),
    Entry(f"{_ROW}.readable.perplexity", 50.0, "Section 4.2", "perplexity threshold: 50, of GPT-2"),
    Entry(f"{_ROW}.class_means", None, "Algorithm 1", "votes alone steer"),
    Entry(
        f"{_ROW}.rows", Worked("30 for each label", _rows), "Algorithm 1",
        "the texts of the last parents; here so many of the last population",
    ),
    Entry(f"{_ROW}.filters.chain", [], OURS, "nothing is filtered behind the perplexity check"),
)  # fmt: skip
_SENTDP = (
    Entry("variants.sentdp<e>.method", "sentdp", "Section 4.3", "SentDP"),
    Entry("variants.sentdp<e>.epsilon", _EPSILON, "Table 1", "ε = 5"),
    Entry("variants.sentdp<e>.rows", Worked("30 for each label", _rows), OURS, "as many as of the method"),
)
_FEWSHOT = (
    Entry("variants.fewshot<e>.method", "fewshot", "Section 4.3", "DP-ICL"),
    Entry("variants.fewshot<e>.epsilon", _EPSILON, "Table 1", "ε = 5"),
    Entry("variants.fewshot<e>.from", reader(), OURS, "a named model reads words; the embedded one is taught"),
    Entry(
        "variants.fewshot<e>.rows",
        Worked("12 over all labels", _rows_per_label),
        "Table 3",
        "up to 12 shots, even labels",
    ),
    Entry("variants.fewshot<e>.filters.chain", [], OURS, "nothing is filtered"),
    Entry("taught.similar", {}, OURS, "teaches the embedded model to go on with a text", "the embedded model"),
)
_CUSTEXT = (
    Entry("variants.custext<e>.method", "custext", "Section 4.3", "CusText"),
    Entry("variants.custext<e>.purpose", "reference", OURS, "it protects single words, and so is never released"),
    Entry("variants.custext<e>.epsilon", math.inf, OURS, "no guarantee for a record"),
    Entry("variants.custext<e>.token_epsilon", _EPSILON, "Table 1", "ε = 5, of a token"),
    Entry("variants.custext<e>.neighbours", 20, OURS, "the size of a token's set is not printed"),
)


_MEASURED = (
    Entry(
        "privacy.budget.delta",
        Worked("1 / n of the units declared; `--delta` goes before it", lambda facts: 1.0 / facts.units),
        "Section 4.2",
        "δ = 1 / |D|",
    ),
    Entry("utility.in_context.shots", [0, 6], "Table 1", "6-shot ICL; zero-shot is ε = 0 of Table 2"),
    Entry("utility.in_context.draws", 10, "Table 1", "10 times with different texts"),
    Entry("runs.in_context", ["embed<e>", "sentdp<e>", "fewshot<e>", "custext<e>"], "Table 1", "all four methods"),
)

PAPER_004 = Preset(
    name="paper-004",
    title="Generate Synthetic Text Approximating the Private Distribution with Differential Privacy (Zhao, Song, Zhou)",
    tasks=("classify",),
    epsilon=5.0,
    worded=True,
    models={
        "models.lm": "gpt2, for the perplexity (Section 4.2)",
        "models.encoder": "GTR-base (Section 4.2)",
        "models.judge": "babbage, curie and davinci, closed (Section 4.4)",
    },
    entries=(*_MEASURED, *_EVOLUTION, *_SENTDP, *_FEWSHOT, *_CUSTEXT),
    beyond=(
        "Its Theorem 3 counts T calls of LimitedDomain as if each picked once. Charged for every pick, its settings on "
        "TREC at epsilon 1 need a gap of 355 votes where a candidate has 0.3, each label apart. `palimpsest plan` says "
        "so of each row.",
        "CusText's epsilon is that of one word. No record is protected.",
    ),
    lacks=(
        "One population for all labels: each label evolves apart, so that rows have labels to learn from.",
        "The decoder and corrector of vec2text.",
    ),
)
