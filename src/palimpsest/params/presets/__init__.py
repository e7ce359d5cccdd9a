"""Presets: the settings of the four papers over all of their methods, each value with its place in the paper.

`palimpsest init --preset paper-000` writes them. The page of presets is rendered from the same declarations.
"""

from collections.abc import Mapping

from palimpsest.params.presets.entry import Entry, Facts, Preset, of_epsilon
from palimpsest.params.presets.paper_000 import PAPER_000
from palimpsest.params.presets.paper_002 import PAPER_002
from palimpsest.params.presets.paper_003 import PAPER_003
from palimpsest.params.presets.paper_004 import PAPER_004

__all__ = ["PRESETS", "Entry", "Facts", "Preset", "of_epsilon"]

PRESETS: Mapping[str, Preset] = {each.name: each for each in (PAPER_000, PAPER_002, PAPER_003, PAPER_004)}
