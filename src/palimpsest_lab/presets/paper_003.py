"""Paper 003: private prediction, at several temperatures, with and without a sparse vector, beside few-shot texts.

The formulas are lost in the copy that we read; values in a formula are read off its tables.
"""

from typing import Any

from palimpsest.params.preset import OURS, Entry, Facts, Preset, Worked, reader

_CLIP, _LOW, _USUAL, _HIGH = 10.0, 1.5, 2.0, 2.25
_SIZES = (127, 255, 511, 1023, 1535, 2047)
_WANTED = 1000  # examples, at the low temperature
_ROWS = ("predict<e>", "low<e>", "high<e>", "svt_near<e>", "svt_mid<e>", "svt_far<e>", "fewshot<e>")
_JSON = "task json"


def _delta(facts: Facts) -> float:
    return min(1e-6, 1.0 / facts.units)


def _batch_size(facts: Facts) -> int:
    """Choose the smallest printed s expected to write as many examples as wanted; else the one that writes most."""
    from palimpsest.privacy.accounting import zcdp_rho

    rho = zcdp_rho(facts.epsilon, facts.delta or _delta(facts))
    usable = [size for size in _SIZES if size * max(1, facts.labels) <= facts.units] or [_SIZES[0]]
    examples = {size: _examples(facts, rho, size) for size in usable}
    return next((size for size in usable if examples[size] >= _WANTED), max(usable, key=examples.__getitem__))


def _examples(facts: Facts, rho: float, size: int) -> int:
    from palimpsest.methods.predict.plan import examples
    from palimpsest.prediction.mechanism import FixedClipping

    tokens = int(rho / FixedClipping(_CLIP, _LOW, size).rho)
    batches = max(1, facts.labels, facts.units // size)
    return examples(batches, tokens, 150 if facts.task == "json" else 20)


def _row(name: str, temperature: float, source: str, says: str, *more: Entry) -> tuple[Entry, ...]:
    """Return the entries of a published row of private prediction, with its own ones."""
    at = f"variants.{name}<e>"
    return (
        Entry(f"{at}.method", "predict", "Algorithm 1", "private prediction from batches of prompts"),
        Entry(f"{at}.epsilon", Worked("ε", lambda facts: facts.epsilon), "Appendix C", "ε and δ of each run"),
        Entry(f"{at}.from", reader(), OURS, "a named model reads words; the embedded one is taught by public pairs"),
        Entry(f"{at}.clipping", "fixed", "Equation 1", "logits are clipped and re-centered"),
        Entry(f"{at}.clip", _CLIP, "Table 7", "logits clip bound: 10"),
        Entry(f"{at}.tokens", None, OURS, "what the budget leaves of private tokens for each batch"),
        Entry(
            f"{at}.batch_size",
            Worked(f"the smallest of {', '.join(map(str, _SIZES))} that leaves {_WANTED:,} examples", _batch_size),
            "Table 7, Section F.1",
            "batch size, chosen large enough for 1K examples at the low temperature",
        ),
        Entry(f"{at}.temperature", temperature, source, says),
        Entry(f"{at}.top_k", 0, "Section F.1", "the whole vocabulary at all other temperatures"),
        Entry(f"{at}.class_means", None, "Section 3.2", "a text has the label of its batch", "labels"),
        Entry(f"{at}.filters.chain", [], OURS, "nothing is filtered"),
        *more,
    )


def _svt(name: str, threshold: float, noise: float, for_json: float | None) -> tuple[Entry, ...]:
    """Return the entries of a row with the sparse vector: one pair of Table 7."""
    at = f"variants.{name}<e>.sparse_vector"
    json = "+ SVT = 0.9 and 1.5, whose symbol is lost; read as the threshold"
    read = () if for_json is None else (Entry(f"{at}.threshold", for_json, "Table 4", json, _JSON),)
    return _row(
        name, _USUAL, "Section F.1", "well formed text; the temperature that thresholds were paired with is lost",
        Entry(f"{at}.threshold", threshold, "Table 7", "SVT threshold: 0.3, 0.5, 0.7"),
        *read,
        Entry(f"{at}.noise", noise, "Table 7", "SVT noise level: 0.1, 0.2, 0.2"),
        Entry(f"{at}.temperature", 1.5, "Table 7", "public temperature: 1.5"),
    )  # fmt: skip


_PREDICT = (
    *_row("predict", _USUAL, "Table 7", "temperature: 1.5, 2, 2.25"),
    *_row("low", _LOW, "Table 7", "temperature: 1.5, 2, 2.25"),
    *_row(
        "high", _HIGH, "Table 7", "temperature: 1.5, 2, 2.25",
        Entry("variants.high<e>.top_k", 1024, "Section F.1", "at this one, the public prediction's top 1024"),
        Entry("variants.high<e>.temperature", 2.5, "Table 4", "temperatures of JSON: 2 and 2.5", _JSON),
        Entry("variants.high<e>.top_k", 0, "Section F.1", "not for any other temperature", _JSON),
    ),
    *_svt("svt_near", 0.3, 0.1, 0.9),
    *_svt("svt_mid", 0.5, 0.2, None),
    *_svt("svt_far", 0.7, 0.2, 1.5),
)  # fmt: skip
_FEWSHOT = (
    Entry("variants.fewshot<e>.method", "fewshot", "Section 5.1", "Tang et al. 2024, run again by the authors"),
    Entry("variants.fewshot<e>.epsilon", Worked("ε", lambda facts: facts.epsilon), "Table 2", "at the same ε"),
    Entry("variants.fewshot<e>.from", reader(), "Section 5.1", "the same model and prompts"),
    Entry("variants.fewshot<e>.rows", 4, "Table 2", "4 shots"),
    Entry("variants.fewshot<e>.top_k", 100, "Section 3.3", "the 100 most popular public tokens"),
    Entry("variants.fewshot<e>.filters.chain", [], OURS, "nothing is filtered"),
)
_TAUGHT = (
    Entry("taught.similar", {}, OURS, "teaches the embedded model to go on with a similar text", "the embedded model"),
)


def _in_context_entry(key: str, value: Any, says: str) -> Entry:
    return Entry(key, value, "Section 5.1", says, "a label")


_MEASURED = (
    Entry(
        "privacy.budget.delta", Worked("1e-6, at most 1 / n of the units declared", _delta), "Appendix C",
        "the δ of the formal statement; it is lost in the copy that we read",
    ),
    _in_context_entry("utility.in_context.shots", [0, 4, 64], "zero shot, 4 and 64 shots (Table 2)"),
    _in_context_entry("utility.in_context.draws", 3, "3 seeds of sampling of exemplars"),
    _in_context_entry("utility.in_context.items", 250, "test sets are cut to 250 examples"),
    Entry(
        "utility.in_context.calibrate", False, "Section 5.1", "calibration for classification, not for extraction",
        "task span",
    ),
    _in_context_entry("runs.in_context", [*_ROWS], "exemplars of every row, and real ones beside them"),
)  # fmt: skip

PAPER_003 = Preset(
    name="paper-003",
    title="Private prediction for large-scale synthetic text generation (Amin et al. 2024)",
    tasks=("classify", "span", "text", "json"),
    epsilon=1.0,
    worded=True,
    models={
        "models.lm": "google/gemma-1.1-2b-it (Table 1b)",
        "models.judge": "GPT-3 babbage-002, closed (Table 1b)",
        "models.classifier": "BERT-Base 12/768 110M (Table 1b)",
    },
    entries=(*_MEASURED, *_TAUGHT, *_PREDICT, *_FEWSHOT),
    beyond=(
        "It chooses temperature, batch size and threshold by a classifier on 10 % of the private rows, free of charge: "
        "no epsilon covers that choice. Here each row takes its own epsilon, and a choice among rows by private test "
        "rows is not covered either.",
        "Its code cuts batches of equal size, which its own theorem does not cover. Here a keyed hash places each "
        "record.",
    ),
    lacks=(
        "The prompts of its Section F.2, which are not in the copy that we read: `models.words` makes some.",
        "Tang's best sample sizes: the defaults of `fewshot` hold.",
        "LaMDA 8B. `dp_lm` with `variant: plain` fine-tunes an open model, `lora_rank` and `soft_prompt` in part.",
    ),
)
