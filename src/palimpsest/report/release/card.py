"""The data-set card, for people and for machines.

For people, README.md as repositories of data sets read it, with its numbers in the front matter. For machines, the
release as Croissant JSON-LD (MLCommons, format 1.0) with the fields of its RAI vocabulary 1.0.
"""

import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import DataError
from palimpsest.params.schema import ReleaseSettings
from palimpsest.records import schema, texts
from palimpsest.records.fields import Categories, Declared, Numbers, describe_field, parse_domain
from palimpsest.records.schema import PublicSchema
from palimpsest.records.structured import PLAIN, WHOLE_ROW
from palimpsest.records.write import Counts
from palimpsest.report.formats import Unit, at_most
from palimpsest.report.statement import read_total

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
PROMISE = "rai:dataManipulationProtocol"
_DESCRIPTION = "Synthetic rows, computed from private rows under differential privacy."
WHOLE = "Each line is a record itself, a JSON object."  # the description of only such a file of lines
_FORMATS = {".parquet": "application/x-parquet", ".jsonl": "application/jsonlines"}
_TERMS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "cells": {"@id": "urn:palimpsest:cells", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS},
}


@dataclass(frozen=True)
class Described:
    """The description of a release, all of it public."""

    release: ReleaseSettings
    data: PublicSchema
    statement: Mapping[str, Any]  # the privacy statement of the released variants
    rows: Mapping[str, Counts]  # variant -> the number of rows and of lines that leave
    fingerprint: str  # of the signing key
    version: str  # of palimpsest
    day: str  # YYYY-MM-DD
    language: str = "en"  # of the rows, as a tag of BCP 47
    copied: str = ""  # what a reader must know of rows that are public texts word for word; "" where none are
    fielded: Collection[str] = ()  # the variants whose rows have fields

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
        text = "A text drawn to be a JSON object." if self.data.task == "json" else "A synthetic text."
        if texts.is_turns(self.data.text):
            text = "A synthetic conversation: a list of turns, each a role and a content."
        columns = dict.fromkeys((PLAIN,) if self.whole else texts.names(self.data.text), text)
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
    return " ".join(text.split()).translate(_MARKS)


def croissant(described: Described, files: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Build the document for the files with rows: name -> SHA-256, and name -> bytes."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": described.release.title,
        "description": f"{described.copied} {_DESCRIPTION}".lstrip(),
        "license": described.release.license or "other",
        "inLanguage": described.language,
        "url": f"urn:palimpsest:{described.data.asset}",
        "version": "1.0.0",
        "citeAs": f"{described.release.title}, synthetic rows of {described.data.asset}, {described.day}.",
        "datePublished": described.day,
        "creator": {"@type": "sc:Organization", "name": f"The holder of the key {described.fingerprint}"},
        "isLiveDataset": False,
        "distribution": [_file(name, digest, sizes[name], described.whole) for name, digest in files.items()],
        "recordSet": [_records(name, described) for name in described.rows],
        PROMISE: state_promise(described.statement),
        **{f"rai:{name}": words for name, words in _responsible(described).items()},
    }


def _file(name: str, digest: str, size: int, whole: bool) -> dict[str, Any]:
    form = PurePath(name).suffix
    described = {"description": WHOLE} if whole and form == ".jsonl" else {}
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        **described,
        "contentUrl": name,
        "contentSize": f"{size} B",
        "encodingFormat": _FORMATS[form],
        "sha256": digest,
    }


def _records(variant: str, described: Described) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": variant,
        "name": variant,
        "description": records_of(variant, described.rows[variant], described.whole),
        "field": [
            *(_field(variant, column, words) for column, words in described.columns.items()),
            *(_declared_field(variant, name, cells) for name, cells in described.fields_of(variant).items()),
        ],
    }


def records_of(variant: str, counts: Counts, whole: bool) -> str:
    """Describe a set of records; `whole`: a line of the JSONL file is the record itself."""
    objects = f" {counts.lines} of them are JSON objects, and lines of data/{variant}.jsonl." if whole else ""
    return f"{counts.rows} synthetic rows of {variant}.{objects}"


def _field(variant: str, column: str, words: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{variant}/{column}",
        "name": f"{variant}/{column}",
        "description": words,
        "dataType": "sc:Text",
        "source": {"fileObject": {"@id": f"data/{variant}.parquet"}, "extract": {"column": column}},
    }


def _declared_field(variant: str, name: str, declared: Declared) -> dict[str, Any]:
    """Describe a column with values of public cells, and the cells as params.yaml has them."""
    domain = parse_domain(name, declared)
    kind = "sc:Text" if isinstance(domain, Categories) else "sc:Date"
    if isinstance(domain, Numbers):
        kind = "sc:Integer" if domain.whole else "sc:Float"
    cells = declared if isinstance(declared, str) else list(declared)
    return {**_field(variant, name, describe_field(name, declared)), "dataType": kind, "cells": cells}


def state_promise(statement: Mapping[str, Any]) -> str:
    """State the statement's promise of privacy."""
    terms = [
        f"{one['variant']}: epsilon {at_most(one['epsilon'], 4)} at delta {at_most(one['delta'])}"
        for one in statement["releases"]
    ]
    return f"Differential privacy for adding or removing {Unit.from_statement(statement).step}. {'; '.join(terms)}."


def _responsible(described: Described) -> dict[str, Any]:
    statement, unit = described.statement, described.unit
    missing = " ".join(item["sentence"] for item in statement["not_covered"])
    return {
        "dataCollection": "Not collected: written by models or chosen from public text, guided by noisy answers about "
        "private rows.",
        "dataCollectionType": ["Others"],
        "dataPreprocessingProtocol": [
            "Every row was searched for ways to reach one person, and none was found; names were not looked for."
        ],
        "dataAnnotationProtocol": "Labels are part of the synthetic rows; no person annotated them.",
        "dataLimitations": [
            f"Rows can be wrong in fact. What few {unit.many} say is lost on purpose.",
            f"The promise does not cover: {missing}",
        ],
        "dataBiases": [
            f"Small groups are represented worse than large ones, because noise hides what few {unit.many} say.",
            "Biases of the private rows, and of the public text and models behind the rows, carry over.",
        ],
        "dataUseCases": ["Training and testing models on text of this kind where the private rows may not leave."],
        "dataSocialImpact": f"What many {unit.many} say together can be read from the rows, about people outside the "
        "data too.",
        "personalSensitiveInformation": [
            f"{unit.description} {unit.note} The private rows may be personal; "
            f"{described.copied or 'these are synthetic.'}"
        ],
        "dataReleaseMaintenancePlan": "Later releases from the same data add to the same ledger and its total.",
    }
