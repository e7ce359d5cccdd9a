"""The results of end-to-end audits that come with this version of palimpsest: `make twins` measures and writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palimpsest.files import read_json
from palimpsest.privacy.planned import QUERIES, versions_of

FILE = Path(__file__).with_name("twins.json")

Results = Mapping[str, Mapping[str, Any]]


def read_shipped() -> Results:
    """Return method -> its audit, as in `TwinAudit.to_json`; a method that was not examined is missing."""
    return dict(read_json(FILE))


def is_current(audit: Mapping[str, Any]) -> bool:
    """Return whether an audit ran the installed code, by the declared versions of queries and tools."""
    return audit["versions"].items() <= {part for query in QUERIES for part in versions_of(query)}
