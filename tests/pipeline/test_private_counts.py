"""How many private rows there are is said by no line, no artifact and no file name, whatever stage reads them.

And no text ends a stage that reads it, however odd: that a query ends would tell that the text is there.
"""

import math
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ruamel.yaml import YAML

from palimpsest.files import write_json
from palimpsest.progress import LINE
from palimpsest.records.keyed import fingerprint
from palimpsest.records.private import SplitRow
from palimpsest.records.write import read_split, write_split
from stages import inputs
from tests.pipeline.place import VARIANT, WRITTEN, Place

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

# Far from any number of the settings.
READ = 389  # rows of the file
SIZES = {"train": 337, "holdout": 211, "test": 139}
GUESSED = {"train": 173, "holdout": 149, "test": 0}
DISTINCT = 313  # texts among the training rows
ODD = (
    "", " ", "\n", "\t\t", "\r\n\r\n", "\x01\x02", "\x85", "\u2028", "\u200b", "\u200d\u200d", "\ufeff", "\ufffd",
    "\uffff", "\U000e0001", "\U0010ffff", "\u202eabc", "a", ".", "0", "-", "...", "!!!???", "\\", "'\"`", "NaN", "None",
    "null", "%s %d {0} {text}", '{"a": 1}', "a.b.c.d", "http://x.y/z?q=1", "<|endoftext|>", "<eos><bos><pad>",
    "[MASK] [CLS]", "A" * 500, "1" * 300, "e\u0301" * 50, "a" + " " * 400 + "b", "ab " * 190,
    "٣٤٥", "中文 文本", "हिन्दी", "שלום",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "ﬁ ß ẞ ŉ ǰ ΐ ᾳ ῼ ǅ", "İİ i̇", "BİLL late", "bıll ſlate parcel wrong",
)  # fmt: skip
PLANTED = {READ, *SIZES.values(), *GUESSED.values(), DISTINCT, 337 + 211, 337 - 173, 173 + 149} - {0}

SELECTED, EVOLVED, VOTED, EMBEDDED, DEEP, WORDS = "select0_5", "evolve0_5", "vote1", "embed0_5", "sentdp0_5", "custext"
CHOSEN, RESTATED, ABOUT, MOVED = "best2", "restate1", "phrases0_5", "steer0_5"
TABLED = "tabulate1"
# Stages in an order in which they can run, with their arguments.
RUN = [
    ("dp_train", VARIANT), ("pplm_generate", VARIANT, VARIANT), ("private_predict", WRITTEN, "taught/similar"),
    ("select", SELECTED), ("private_evolve", EVOLVED, "base"), ("evolution_audit", EVOLVED),
    ("choose", CHOSEN), ("restate", RESTATED, SELECTED), ("tabulate", TABLED, SELECTED), ("phrases", ABOUT),
    ("steer", MOVED),
    ("vote_select", VOTED, VARIANT), ("decoder_pretrain", "small"), ("eda_evolve", EMBEDDED, "small"),
    ("eda_audit", EMBEDDED), ("sentdp", DEEP), ("custext", WORDS), ("baseline_eval",), ("downstream_eval", VARIANT),
    ("mia", VARIANT, VARIANT), ("shadow_mia", VARIANT, VARIANT), ("embedding_audit", VARIANT), ("familiarity_audit",),
    ("ngram_audit", VARIANT), ("text_mia", VARIANT), ("prompt_mia", VARIANT), ("clipping_audit", "base"),
    ("memorisation_audit", VARIANT), ("anonymity_audit", VARIANT), ("fidelity_audit", VARIANT), ("preprocess",),
]  # fmt: skip
NEAR_DUPLICATES = "progress near-duplicates 75% eta 0:00:00"
ELSEWHERE = {  # private, and why not above
    "world": "makes as many rows as its settings say",
    "discriminator": "the query of dp_train",
    "classifier_eval": "asks for a discriminator",
    "incontext_baseline": "asks for a model that reads demonstrations",
    "incontext_eval": "the same",
    "facts_audit": "asks for the invented world",
    "report": "prints nothing, and its pages are of the private zone",
}


class Quick:
    """An encoder that reads a text's first letters."""

    max_seq_length, tokenizer = 256, SimpleNamespace(is_fast=False)

    def __init__(self, folder: str, **_: object) -> None: ...

    def eval(self) -> None: ...

    def float(self) -> "Quick":
        return self

    def get_embedding_dimension(self) -> int:
        return 384

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        found = np.ones((len(texts), 384), dtype=np.float32)
        for row, text in enumerate(texts):
            found[row, [ord(sign) % 384 for sign in text[:40]]] += 1
        return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """The workspace with planted numbers of rows, and small settings for every stage that reads them."""
    place = copy(ran)
    votes = {"neighbours": 3, "threshold": 0.0, "selection": "rank"}
    attributes = {"matter": {"values": {"bill": [], "parcel": []}}, "kind": {"values": {"late": [], "wrong": []}}}
    rounds = {"rows": 20, "rounds": 2, "expand": 2, "batch": 64}
    written = {"epsilon": 0.5, "rows": 20, "max_tokens": 12, "label_counts": "prior"}
    decode = {"samples": 2, "corrections": 1, "max_tokens": 12, "batch": 32}
    sizes = {"rows": 20, "rounds": 2, "start": 30, "offspring": 20, "parents": 5, "batch": 64, "decode": decode}
    variants = {
        SELECTED: {"method": "select", "epsilon": 0.5, "rows": 60, "batch": 64},
        EVOLVED: {"method": "evolve", "epsilon": 0.5, **rounds, "votes": votes},
        VOTED: {"method": "vote_select", "epsilon": 1.0, "from": VARIANT, "keep": 0.5, "votes": votes, "batch": 64},
        RESTATED: {"method": "restate", "epsilon": 1.0, "from": SELECTED, "attributes": attributes},
        TABLED: {"method": "tabulate", "epsilon": 1.0, "from": SELECTED, "batch": 64},
        ABOUT: {"method": "phrases", **written, "most": 2, "delta_share": 1e-4},  # not much of delta is left
        MOVED: {"method": "steer", **written, "pool": 1, "pilot": 2, "strengths": [1.0]},
        CHOSEN: {"method": "choose", "epsilon": 2.0, "from": [SELECTED, EVOLVED]},
        EMBEDDED: {"method": "embed", "epsilon": 0.5, "from": "small", **sizes},
        DEEP: {"method": "sentdp", "epsilon": 0.5, "rows": 40, "directions": 10, "batch": 64},
        WORDS: {"method": "custext", "epsilon": math.inf, "token_epsilon": 0.5, "vocabulary": 60, "neighbours": 5},
    }
    place.edit("dataset", fields={"size": ["small", "large"], "age": "number(0..90, 30)"})
    place.edit("authors", base={"kind": "base", "max_tokens": 12, "batch": 16})
    place.edit("decoders", "small", epochs=0.2, sentences=300, heldout=20, max_tokens=16)
    place.edit("variants", **variants)
    place.edit("models", "prompts", epochs=0.1)
    place.edit("runs", shadow_mia=[VARIANT], prompt_mia=[VARIANT])
    place.edit("utility", in_context={"demonstration_tokens": 16, "item_tokens": 16})
    place.edit("audit", "prompts", draws=2, shown=10)
    place.cap(100.0)
    with place.entered() as patch:
        patch.setattr("palimpsest.models.encoder.SentenceTransformer", Quick)
        plant(place)
        yield place


def plant(place: Place) -> None:
    """Splits, and a file, of the planted sizes."""
    source = read_split("data/private/train.parquet")
    for part, size in SIZES.items():
        different = DISTINCT if part == "train" else size
        rows = [source[number % len(source)] for number in range(different)]
        texts = [*ODD, *(f"{row.text} {part} {number}" for number, row in enumerate(rows))]
        made = [SplitRow(text, row.label, fields="1,2") for text, row in zip(texts, rows, strict=False)]
        made += made[: size - different]
        guessed = range(size - GUESSED[part], size)
        write_split(
            f"data/private/{part}.parquet",
            [SplitRow(row.text, row.label, number in guessed, fields=row.fields) for number, row in enumerate(made)],
            fields=True,
        )
    known = fingerprint(read_split("data/private/train.parquet"), place.ledger.asset("tickets").key)
    write_json("data/private/manifest.json", {"zone": "private", "fingerprint": known})
    file = place.home / "rows.csv"
    lines = place.private.read_text().splitlines(keepends=True)
    told = ["size,age", *["small,40"] * READ]
    file.write_text("".join(f"{line.rstrip()},{more}\n" for line, more in zip(lines, told, strict=False)))
    place.edit("dataset", private=str(file))


@pytest.fixture(scope="module")
def told(place: Place) -> dict[str, str]:
    """Stage -> what it printed."""
    found = {}
    for name, *arguments in RUN:
        program = inputs.programs()[name][0]
        code, found[name] = place.stage(import_module(program), *arguments)
        assert code == 0, found[name]
    return found


def planted(text: str) -> list[int]:
    """The planted numbers that stand in a text as whole numbers, with or without a separator of thousands."""
    joined = re.sub(r"(?<=\d)[,_ ](?=\d{3}(?!\d))", "", text)
    return [number for number in sorted(PLANTED) if re.search(rf"(?<![0-9.]){number}(?![0-9]|\.[0-9])", joined)]


@pytest.mark.parametrize("text", ["a 337/1000 b", "1/337 it", "of 337.", "n=337,", "x/part_337.json", "rows337"])
def test_a_planted_number_would_be_found(text: str) -> None:
    assert planted(text) == [337]


def test_the_sizes_are_the_planted_ones(told: dict[str, str]) -> None:
    assert planted("1337 33 7 0.337 337.5 3370") == []
    assert sum(len(read_split(f"data/private/{part}.parquet")) for part in SIZES) == READ  # of preprocess, the last


def test_every_private_stage_is_here() -> None:
    graph = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]
    private = {name for name, stage in graph.items() if stage.get("do", stage)["meta"]["zone"] == "private"}
    assert private - {name for name, *_ in RUN} == set(ELSEWHERE)


def test_no_line_tells_how_many_private_rows_there_are(told: dict[str, str]) -> None:
    lines = {(name, line) for name, output in told.items() for line in output.splitlines()}
    assert {("mia", "progress tokens 100% eta 0:00:00"), ("preprocess", NEAR_DUPLICATES)} <= lines
    assert ("prompt_mia", "progress prompts 100% eta 0:00:00") in lines
    assert [(name, line) for name, line in lines if planted(line)] == []


def test_no_batches_of_private_rows_are_counted(told: dict[str, str]) -> None:
    found = [match for output in told.values() for line in output.splitlines() if (match := LINE.match(line))]
    counted = {match["name"] for match in found if match["total"]}
    assert counted == {"train", "predict wave 0", "predict wave 1", "words", "decoder", "shadow models", "fidelity"}


def test_no_file_is_named_by_how_many_there_are(place: Place, told: dict[str, str]) -> None:
    names = place.files("data", "models", "reports")
    assert "reports/metrics/dp0_5/fidelity.json" in names
    hashes = re.compile(r"[0-9a-f]{16,}|\d{12,}")  # and times, in which any number may stand
    assert [name for name in names if planted(hashes.sub("", name))] == []
