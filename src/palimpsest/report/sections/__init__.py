"""The sections of the audit page, listed once: a new audit is a module here, and a name in `SECTIONS`.

The order of `SECTIONS` is that of columns and tables; figures stand under `HEADINGS`.
"""

from palimpsest.report.sections import (
    anonymity,
    bracket,
    budget,
    classifier,
    clipping,
    decoder,
    evolution,
    facts,
    familiarity,
    fidelity,
    generation,
    incontext,
    membership,
    memorisation,
    ngrams,
    prompts,
    separation,
    structure,
    utility,
)
from palimpsest.report.sections.base import Figure, Page

SECTIONS = (
    bracket.SECTION,
    membership.SECTION,
    prompts.SECTION,
    utility.SECTION,
    classifier.SECTION,
    familiarity.SECTION,
    clipping.SECTION,
    generation.SECTION,
    incontext.SECTION,
    decoder.SECTION,
    ngrams.SECTION,
    memorisation.SECTION,
    anonymity.SECTION,
    separation.SECTION,
    facts.SECTION,
    structure.SECTION,
    fidelity.SECTION,
    evolution.SECTION,
    budget.SECTION,
)

METRICS = tuple(metric for section in SECTIONS for metric in section.metrics)

HEADINGS = (
    "Privacy", "Memorisation", "Evidence on anonymity", "Utility", "Separation", "Facts", "Structure", "Fidelity",
    "Shape", "Budget",
)  # fmt: skip


def gallery(page: Page) -> tuple[Figure, ...]:
    """Every figure that the results allow, heading by heading; what was not measured has none."""
    drawn = [figure for section in SECTIONS for figure in section.figures(page)]
    return tuple(sorted(drawn, key=lambda figure: HEADINGS.index(figure.section)))
