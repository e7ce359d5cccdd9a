"""The sections of the audit page, listed once. A new one is a module here and a name in `SECTIONS`, or an entry point.

Columns and tables follow the order of `SECTIONS`; figures stand under `HEADINGS`.
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
