"""Writes the release as Croissant JSON-LD (MLCommons, format 1.0) with the fields of its RAI vocabulary 1.0."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from palimpsest.records.fields import Categories, Declared, Numbers, describe_field, parse_domain
from palimpsest.records.write import Counts
from palimpsest.report.formats import at_most
from palimpsest.report.release.card import Described
from palimpsest.report.unit import Unit

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
