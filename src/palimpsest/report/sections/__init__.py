"""The sections of the audit page, listed once. A new one is a module here and a name in `SECTIONS`, or an entry point.

Columns and tables follow the order of `SECTIONS`; figures stand under `HEADINGS`.

* `base`: the parts that a section of the page is made of
* `budget`: the budget, charge by charge, and the card's figures: the limits that a proven curve sets to any attack
* `fidelity`: likeness to the private rows as sets, the share of rows that conform to a schema, and facts of the
  invented world
* `fields`: fields beside texts: distances of their tables, and what a model of texts and fields learns from the rows
* `generation`: how the rows were made: written, chosen or replaced; decoded from embeddings
* `membership`: attacks on the model and on only the rows: membership, those that packages bring, and evidence on
  anonymity
* `memorisation`: members and secrets that the rows repeat, and n-grams shared with members, a holdout and public text
* `pipeline`: the graph of stages with its zones, which is the figure of the provenance
* `utility`: usefulness: scores of what was trained on the rows, classifiers trained with DP-SGD beside them, and
  brackets on epsilon
"""

from palimpsest import extensions
from palimpsest.report.sections import budget, fidelity, fields, generation, membership, memorisation, utility
from palimpsest.report.sections.base import Figure, Page

_BROUGHT = tuple(extensions.load_group(extensions.PAGES).values())
SECTIONS = (
    utility.BRACKETS,
    membership.SECTION,
    utility.SECTION,
    utility.CLASSIFIERS,
    generation.SECTION,
    generation.DECODERS,
    memorisation.NGRAMS,
    memorisation.SECTION,
    membership.ANONYMITY,
    fidelity.FACTS,
    fidelity.STRUCTURE,
    fields.SECTION,
    fidelity.SECTION,
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
