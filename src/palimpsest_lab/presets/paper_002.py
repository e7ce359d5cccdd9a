"""Paper 002: Aug-PE, private evolution of texts by a language model that is only asked.

We read its abstract and captions. Other values are taken from the code that the authors published
(github.com/AI-secure/aug-pe), and named by its file.
"""

from typing import Any

from palimpsest.params.preset import ALWAYS, OURS, Entry, Preset, Worked

_CODE = "code, scripts/hf/template"
_API = "code, scripts/gpt-3.5-turbo"
_AUTHOR, _ROW = "authors.aug_pe", "variants.evolve<e>"
_NAMED, _REVIEWS, _TEXT = "a named model", "words: reviews", "task text"


def _make_entries(key: str, openreview: Any, yelp: Any, pubmed: Any, source: str, says: str) -> tuple[Entry, ...]:
    """Return one key of the three data sets; data that are neither reviews nor without labels are set as OpenReview."""
    ways = {ALWAYS: openreview, _REVIEWS: yelp, _TEXT: pubmed}
    return tuple(Entry(key, value, source, says, where) for where, value in ways.items())


_LOOP = (
    Entry(f"{_ROW}.method", "evolve", "Figure 2", "Aug-PE"),
    Entry(f"{_ROW}.epsilon", Worked("ε", lambda facts: facts.epsilon), "Figure 3", "ε = 1; the code has 2 and 4 too"),
    Entry(f"{_ROW}.from", "aug_pe", "Figure 2", "the model behind both APIs"),
    Entry(f"{_ROW}.rounds", 10, "code, notebook/dp_budget.ipynb", "T, the rounds for which noise is printed: 10"),
    Entry(f"{_ROW}.expand", 7, f"{_CODE}/*.sh", "6 variations, so L is 7"),
    Entry(f"{_ROW}.look_ahead", 0, f"{_CODE}/*.sh", "lookahead degree, K: 0, a text is voted for as it is"),
    Entry(f"{_ROW}.votes.neighbours", 1, "Figure 2, step 2.1", "each private sample votes for the closest one"),
    Entry(f"{_ROW}.votes.threshold", 0.0, "code, dpsda/arg_utils.py", "count threshold, H: 0"),
    Entry(f"{_ROW}.votes.selection", "rank", f"{_CODE}/*.sh", "selection mode: rank"),
    Entry(f"{_ROW}.class_means", None, "Figure 2", "votes alone steer", "labels"),
    *_make_entries(f"{_ROW}.rows", 2000, 5000, 2000, f"{_CODE}/*.sh", "seed samples: 2,000, and 5,000 of Yelp"),
    Entry(f"{_ROW}.filters.chain", [], OURS, "nothing is filtered"),
)
_MODEL = (
    Entry(f"{_AUTHOR}.kind", "base", "code, apis/hf_api.py", "open models go on with bare prompts"),
    Entry(f"{_AUTHOR}.vary", "infill", OURS, "the embedded model reads no words, so it fills gaps"),
    Entry(f"{_AUTHOR}.vary", "paraphrase", f"{_CODE}/*.sh", "variation type: rephrase in a tone", _NAMED),
    *_make_entries(f"{_AUTHOR}.masked", 0.5, 0.5, 0.6, f"{_CODE}/*.sh", "p_mask: 0.5, and 0.6 of PubMed"),
    *_make_entries(
        f"{_AUTHOR}.temperature", 1.2, 1.4, 1.0, f"{_CODE}/*.sh",
        "temperature: 1.2 of OpenReview, 1.4 of Yelp, 1.0 of PubMed",
    ),
    Entry(f"{_AUTHOR}.top_p", 0.9, "code, apis/hf_api.py", "nucleus: 0.9; its 50 likeliest tokens cannot be asked for"),
    *_make_entries(f"{_AUTHOR}.max_tokens", 448, 64, 448, f"{_CODE}/*.sh", "length: 448 tokens, and 64 of Yelp"),
    Entry(f"{_AUTHOR}.max_tokens", 64, OURS, "the embedded model has 128 positions", "the embedded model"),
    Entry(f"{_AUTHOR}.examples", 0, "code, apis/hf_api.py", "a new text stands behind the prompt alone", _NAMED),
)  # fmt: skip
_BY_ENDPOINT = (
    Entry(f"{_AUTHOR}.kind", "endpoint", "Section 1", "models that are reached through an API alone, such as GPT-3.5"),
    Entry(f"{_ROW}.expand", 4, f"{_API}/*.sh", "3 variations, so L is 4"),
    Entry(f"{_AUTHOR}.prompts.vary", "blanks", f"{_API}/*.sh", "variation type: fill in the blanks"),
    *_make_entries(f"{_AUTHOR}.prompts.masked", 0.5, 0.5, 0.6, f"{_API}/*.sh", "p_mask: 0.5, and 0.6 of PubMed"),
    *_make_entries(f"{_AUTHOR}.temperature", 1.2, 1.4, 1.2, f"{_API}/*.sh", "temperature: 1.2, and 1.4 of Yelp"),
    *_make_entries(
        f"{_AUTHOR}.length.spread", 30.0, 20.0, 36.0, f"{_API}/*.sh",
        "p_mask times a scale of 60 words, of Yelp 40, as apis/azure_api.py draws it",
    ),
    *_make_entries(
        f"{_AUTHOR}.length.tokens_a_word", 5.0, 1.2, 5.0, f"{_API}/*.sh", "tokens a word: 5, and 1.2 of Yelp"
    ),
    *_make_entries(f"{_AUTHOR}.length.cap", 1000, 128, 1000, f"{_API}/*.sh", "length: 1,000 tokens, and 128 of Yelp"),
    Entry(f"{_AUTHOR}.length.least", 25, "code, apis/azure_api.py", "fewest words that are asked for: 25"),
    Entry(f"{_AUTHOR}.top_p", 1.0, "code, apis/azure_api.py", "nucleus: 1"),
)  # fmt: skip
_MEASURED = (
    Entry("utility.seeds", 3, f"{_CODE}/*.sh", "seeds 0, 1 and 2", "labels"),
    Entry("utility.finetune.batch", 32, f"{_CODE}/*.sh", "cls_batch_size=32", "labels"),
    Entry("utility.finetune.learning_rate", 3e-5, f"{_CODE}/*.sh", "learning_rate 3e-5", "labels"),
    Entry("utility.finetune.max_tokens", 512, f"{_CODE}/*.sh", "max_seq_length 512", "labels"),
    Entry("utility.finetune.epochs", 10, f"{_CODE}/openreview.sh", "num_train_epochs=10", "labels"),
    Entry("utility.finetune.epochs", 5, f"{_CODE}/yelp.sh", "num_train_epochs=5", _REVIEWS),
)

PAPER_002 = Preset(
    name="paper-002",
    title="Differentially Private Synthetic Data via Foundation Model APIs 2: Text (Xie et al. 2024)",
    tasks=("classify", "text"),
    epsilon=1.0,
    worded=True,
    models={
        "models.lm": "gpt2, gpt2-medium or gpt2-large (code, scripts/hf/template)",
        "models.encoder": "stsb-roberta-base-v2; sentence-t5-base for PubMed (code, scripts/hf/template)",
        "models.classifier": "roberta-base (code, scripts/hf/template)",
    },
    entries=(*_LOOP, *_MODEL, *_MEASURED),
    beyond=(
        "Its noise of 15.34 for ten rounds at epsilon 1 and 1,939,290 records gives epsilon 1.0045. Here the noise is "
        "worked out exactly, 15.40 in that case.",
        "It takes the number of texts of each class from private counts, free of charge. Here shares come from a "
        "noisy histogram, which takes 1 % of the budget.",
    ),
    lacks=(
        "Keywords for new texts and a tone for variations, where the author is an open model: the prompts of an author "
        "behind an endpoint have both.",
    ),
    by_endpoint=_BY_ENDPOINT,
)
