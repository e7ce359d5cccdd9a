"""The data-set card: README.md as repositories of data sets read it, with its numbers in the front matter."""

import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import DataError
from palimpsest.params.schema import ReleaseSettings
from palimpsest.records import schema
from palimpsest.records.fields import Declared, describe_field
from palimpsest.records.schema import PublicSchema
from palimpsest.records.structured import PLAIN, WHOLE_ROW
from palimpsest.records.write import Counts
from palimpsest.report.formats import at_most
from palimpsest.report.statement import read_total
from palimpsest.report.unit import Unit

_FENCE = "---\n"
_FENCES = re.compile(f"^{_FENCE}", re.MULTILINE)
_TASKS = {
    "classify": "text-classification",
    "span": "text-classification",
    "text": "text-generation",
    "json": "text-generation",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_COUNT = "* `data/"  # begins each line about a variant's files, and no other line
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>#|!&"})


@dataclass(frozen=True)
class Described:
    """The description of a release, all of it public.

    Attributes:
        statement: the privacy statement of the released variants.
        rows: variant -> the number of rows and of lines that leave.
        fingerprint: of the signing key.
        version: of palimpsest.
        day: YYYY-MM-DD.
        language: of the rows, as a tag of BCP 47.
        copied: what a reader must know of rows that are public texts word for word; "" where none are.
        fielded: the variants whose rows have fields.
    """

    release: ReleaseSettings
    data: PublicSchema
    statement: Mapping[str, Any]
    rows: Mapping[str, Counts]
    fingerprint: str
    version: str
    day: str
    language: str = "en"
    copied: str = ""
    fielded: Collection[str] = ()

    @property
    def unit(self) -> Unit:
        """The unit of privacy."""
        return Unit.from_statement(self.statement)

    @property
    def whole(self) -> bool:
        """True if a line is the record itself."""
        return self.data.text == WHOLE_ROW

    @property
    def columns(self) -> dict[str, str]:
        """Column -> its content, of the columns that all variants have."""
        text = PLAIN if self.whole else self.data.text
        columns = {text: "A text drawn to be a JSON object." if self.data.task == "json" else "A synthetic text."}
        label = "Its label, one of a public list." if self.data.labels else "Its label, which is free text."
        return columns | dict.fromkeys(schema.names(self.data.label), label)

    def fields_of(self, variant: str) -> Mapping[str, Declared]:
        """Return the columns behind these of a variant: name -> public declaration."""
        return self.data.fields if variant in self.fielded else {}


def readme(described: Described) -> str:
    """Write the card as Markdown behind YAML front matter."""
    rest = (_rows, _making, _limits, _files)
    parts = [_summary(described), privacy(described.statement), *(part(described) for part in rest)]
    return _front(described) + "\n".join(parts)


def read_epsilons(text: str) -> dict[str, tuple[float, str]]:
    """Read variant -> its epsilon and the unit that it is for, from a card's front matter.

    Raises:
        DataError: the text is no such card.
    """
    try:
        _, front, _ = _FENCES.split(text, 2)
        lines = YAML(typ="safe", pure=True).load(front)["differential_privacy"]
        return {str(line["variant"]): (float(line["epsilon"]), str(line["unit"])) for line in lines}
    except (ValueError, KeyError, TypeError, YAMLError):
        raise DataError("README.md states no epsilon.", "Ask the releaser for the release again.") from None


def read_counts(text: str) -> set[str]:
    """Return the lines in which a card states the numbers of rows of its files."""
    return {line for line in text.splitlines() if line.startswith(_COUNT)}


def count_of(variant: str, counts: Counts, whole: bool) -> str:
    """Write the line about a variant's files; `whole`: a line of the JSONL file is the record itself."""
    table, lines = f"{_COUNT}{variant}.parquet`", f"`data/{variant}.jsonl`"
    if whole:
        return f"{table}: {counts.rows:,} rows. {lines}: the {counts.lines:,} of them that are JSON objects."
    return f"{table}, {lines}: {counts.rows:,} rows."


def field_lines(name: str, declared: Declared, variants: Iterable[str]) -> list[str]:
    """Write the lines about a field of some variants."""
    words = _escape_markdown(describe_field(name, declared))
    return [f"* {_escape_markdown(name)}, of {_escape_markdown(variant)}: {words}" for variant in variants]


def _front(described: Described) -> str:
    body = {
        "pretty_name": described.release.title,
        "license": described.release.license or "other",
        "language": described.language.lower().split("-")[0],
        "task_categories": [_TASKS[described.data.task]],
        "size_categories": [_size(sum(counts.rows for counts in described.rows.values()))],
        "tags": ["synthetic", "differential-privacy", "text"],
        "configs": [{"config_name": name, "data_files": f"data/{name}.parquet"} for name in described.rows],
        "differential_privacy": [
            {key: release[key] for key in ("variant", "method", "epsilon", "delta")} | {"unit": described.unit.name}
            for release in described.statement["releases"]
        ],
    }
    yaml, stream = YAML(), io.StringIO()
    yaml.width = 4096
    yaml.dump(body, stream)
    return f"{_FENCE}{stream.getvalue()}{_FENCE}\n"


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "n>1M")


def _summary(described: Described) -> str:
    copied = f"{_escape_markdown(described.copied)}\n\n" if described.copied else ""
    return (
        f"# {_escape_markdown(described.release.title)}\n\n{copied}"
        "Synthetic rows, computed from private rows under differential privacy. What any one "
        f"{described.unit.name} may have changed in all of them together is bounded below. A row can equal a private "
        "one where many say the same, or where public text has it. The same in one page: `card.html`.\n"
    )


def privacy(statement: Mapping[str, Any]) -> str:
    """Write the part about privacy. All of it follows from the statement, so a check of the release writes it again."""
    unit, releases = Unit.from_statement(statement), statement["releases"]
    lines = [
        f"| {one['variant']} | {one['method']} | {at_most(one['epsilon'], 4)} | {at_most(one['delta'])} | "
        f"{one['accounting']['name']} |"
        for one in releases
    ]
    meanings = [f"* **{one['variant']}**: {one['meaning']['sentence']}" for one in releases if one["meaning"]]
    groups = [line for one in releases for line in _groups(one, unit)]
    flags = [f"* **Look, {one['variant']}**: {flag}" for one in releases for flag in one["flags"]]
    return "\n".join(
        [
            "## Privacy\n",
            f"Protected: {unit.description} {_escape_markdown(unit.note)} The promise is for adding or "
            f"removing {unit.step}.\n",
            "| rows of | method | ε | δ | accountant |\n| --- | --- | --- | --- | --- |",
            *lines,
            "",
            *meanings,
            *groups,
            *flags,
            "",
            f"{read_total(statement).sentence} `ledger.json` has the events, from which every ε can be "
            "computed again.\n",
            "Not covered:\n",
            *(f"* {item['sentence']}" for item in statement["not_covered"]),
            "",
        ]
    )


def _groups(release: Mapping[str, Any], unit: Unit) -> list[str]:
    bounds = {row["k"]: row["epsilon"] for row in release["group"] if row["k"] > 1}
    words = {k: "no bound" if epsilon is None else f"ε ≤ {at_most(epsilon, 4)}" for k, epsilon in bounds.items()}
    rows = "; ".join(f"{k} {unit.counted} {bound}" for k, bound in words.items())
    name = release["variant"]
    return [f"* **{name}**, for {unit.groups}: {rows}.", f"* **{name}**: {release['changed_row']['sentence']}"]


def _rows(described: Described) -> str:
    counts = [count_of(name, counts, described.whole) for name, counts in described.rows.items()]
    columns = [f"* {_escape_markdown(name)}: {words}" for name, words in described.columns.items()]
    labels = [
        f"  * {_escape_markdown(name)}: {_escape_markdown(words)}" for name, words in described.data.labels.items()
    ]
    fielded = [name for name in described.rows if name in described.fielded]
    fields = [line for own in described.data.fields.items() for line in field_lines(*own, fielded)]
    return "\n".join(["## Rows\n", *counts, "", "Columns:\n", *columns, *labels, *fields, ""])


def _making(described: Described) -> str:
    names = sorted({query["name"] for one in described.statement["releases"] for query in one["mechanisms"]})
    return (
        "## How it was made\n\n"
        f"By palimpsest {described.version}. Private rows were asked through a ledger that counts every look before "
        f"it is taken; the mechanisms were: {', '.join(map(_escape_markdown, names))}. Everything after them reads "
        "their noisy answers and public files alone. `prov.json` has every step.\n"
    )


def _limits(described: Described) -> str:
    units = described.unit.many
    return (
        "## Use and limits\n\n"
        "Made for training and testing models on text of this kind where the private rows may not leave. Rows can be "
        f"wrong in fact: noise and the writing model invent. What few {units} say is lost on purpose, so small groups "
        "are represented worse than large ones. Biases of the private rows, and of the public text and models behind "
        f"the synthetic ones, carry over. What many {units} say together can be read from them, about people outside "
        "the data too. Every row was searched for ways to reach one person (addresses, telephone, card and account "
        "numbers), and none was found; names were not looked for.\n"
    )


def _files(described: Described) -> str:
    return (
        "## Files\n\n"
        "`card.html` privacy card; `statement.json` privacy statement; `audit.json` what was measured on outputs, "
        "public files and invented canaries; `ledger.json` extract of the ledger; `tradeoff.json` the proven trade-off "
        "curves; `croissant.json` description for programs; `prov.json` provenance; `key.pub` and `envelope.json` the "
        "signature.\n\n"
        f"Check the folder with `palimpsest verify FOLDER --key {described.fingerprint}`. The fingerprint is worth "
        "something only if it reached you by another way than this folder.\n"
    )


def _escape_markdown(text: str) -> str:
    """Escape text so that Markdown takes it as it is."""
    return " ".join(text.split()).translate(_MARKS)
