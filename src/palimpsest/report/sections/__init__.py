"""The sections of the audit page, listed once. A new one is a module here and a name in `SECTIONS`, or an entry point.

Columns and tables follow the order of `SECTIONS`; figures stand under `HEADINGS`.

* `anonymity`: evidence on singling out, linkability and inference
* `base`: the parts that a section of the page is made of
* `bracket`: brackets on the true epsilon: attacks bound it from below, proofs from above
* `budget`: the budget, charge by charge
* `classifier`: classifiers that were themselves trained with DP-SGD, beside those that only read synthetic rows
* `decoder`: decoders of embeddings, and how much of their output was readable
* `evolution`: evolution, round by round: how near its texts are, how votes spread, and how many parents are left
* `facts`: facts of the invented world: those that many units state, those that one states, and those planted
* `fields`: fields beside texts: distances of their tables, and what a model of texts and fields learns from the rows
* `fidelity`: similarity of the synthetic and the private rows as sets: by measures, by length, and by label
* `generation`: how the rows were made: written, chosen, or replaced word by word
* `membership`: membership attacks on the model and on only the rows, and the attacks that packages bring
* `memorisation`: members and secrets that the rows repeat
* `ngrams`: shared n-grams: overlap with members, with a holdout that nothing saw, and with public text
* `pipeline`: the graph of stages with its zones, which is the figure of the provenance
* `promise`: the card's figures, from public numbers only: the limits that a proven curve sets to any attack
* `structure`: shares of rows that are JSON, and of rows that conform to the schema
* `utility`: usefulness: classifiers, or a language model, trained on the rows and tested on real ones
"""

from palimpsest import extensions
from palimpsest.report.sections import (
    anonymity,
    bracket,
    budget,
    classifier,
    decoder,
    evolution,
    facts,
    fidelity,
    fields,
    generation,
    membership,
    memorisation,
    ngrams,
    structure,
    utility,
)
from palimpsest.report.sections.base import Figure, Page

_BROUGHT = tuple(extensions.load_group(extensions.PAGES).values())
SECTIONS = (
    bracket.SECTION,
    membership.SECTION,
    utility.SECTION,
    classifier.SECTION,
    generation.SECTION,
    decoder.SECTION,
    ngrams.SECTION,
    memorisation.SECTION,
    anonymity.SECTION,
    facts.SECTION,
    structure.SECTION,
    fields.SECTION,
    fidelity.SECTION,
    evolution.SECTION,
    *_BROUGHT,
    budget.SECTION,
)

METRICS = tuple(metric for section in SECTIONS for metric in section.metrics)

_HEADINGS = (
    "Privacy", "Memorisation", "Evidence on anonymity", "Utility", "Facts", "Structure", "Fidelity", "Shape",
)  # fmt: skip
HEADINGS = tuple(dict.fromkeys([*_HEADINGS, *(section.heading for section in _BROUGHT if section.heading), "Budget"]))


def gallery(page: Page) -> tuple[Figure, ...]:
    """Draw every figure that the results allow, heading by heading; what was not measured has none."""
    drawn = [figure for section in SECTIONS for figure in section.figures(page)]
    return tuple(sorted(drawn, key=lambda figure: HEADINGS.index(figure.section)))
