"""The paths of a workspace, from its folder, and what may become of the files there."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path


class Zone(StrEnum):
    """The kind of data that a stage reads, which decides what may become of what it writes.

    Private: rows of the data set, or what follows from them; it never leaves. Dp: the answers of ledgered mechanisms,
    and what follows from them. Public: data with nobody behind them.
    """

    PRIVATE = "private"
    DP = "dp"
    PUBLIC = "public"


# The label of a private stage's document, which says whether it holds nothing of a row, and so may be shown.
PUBLISHABLE, INTERNAL = "publishable", "internal"


DATA = Path("data")
RAW = DATA / "raw"  # the invented world
GIVEN = DATA / "given"  # tables that were values, or lay elsewhere
ORIGINS = GIVEN / "origins.json"  # name of such a file -> where it is from
FACTS = RAW / "facts.json"  # its answer key
PRIVATE = DATA / "private"  # the splits
BASELINES = PRIVATE / "baselines.json"
RELEASES = PRIVATE / "releases.jsonl"  # the owner's words
MANIFEST, ROWS_REPORT = PRIVATE / "manifest.json", PRIVATE / "report.json"  # the rows' keyed hash; what is odd of them
FAULT = PRIVATE / "fault.json"  # the record that ended the reading of the rows, where one did
PUBLIC = DATA / "public"  # made only of public files
EMBEDDINGS = PUBLIC / "embeddings.npz"
WRITTEN = PUBLIC / "written.jsonl"  # the public file where an author writes it
ZERO_SHOT = PUBLIC / "zero_shot"  # texts by authors whom no row was shown
INPUTS = DATA / "inputs"  # what stages depend on and no stage makes; the stage that looks at it has its name
CODE, SOURCES = INPUTS / "code", INPUTS / "sources"
SYNTHETIC = DATA / "synthetic"
REAL, PUBLIC_ONLY, PUBLIC_LM = "real", "public_only", "public_lm"  # the rows that variants stand beside
EVOLVED = DATA / "evolved"  # what each round of `evolve` and `embed` selected
SHARDS = DATA / "shards"  # outside DVC's outputs, so that a stopped stage leaves them

MODELS = Path("models")
BASE_LM = MODELS / "base"
UNTOUCHED = MODELS / "untouched"  # a named model as it was, beside its copy in `base` that learned prompts
TAUGHT = MODELS / "taught"  # public, as the base is
DECODERS = MODELS / "decoders"  # public too
NEXT_TOKEN_LM = MODELS / "next_token"  # public too: what the next-token evaluation starts from
CHECKPOINTS = MODELS / "checkpoints"  # outside DVC's outputs, so that a stopped stage leaves them

REPORTS = Path("reports")
METRICS = REPORTS / "metrics"
MODEL_METRICS, DECODER_METRICS = METRICS / "models", METRICS / "decoders"
CLASSIFIER_METRICS = METRICS / "classifiers"
SCORES, FAMILIARITY = METRICS / "public.json", METRICS / "familiarity.json"
RECEIPTS = REPORTS / "receipts"
MODEL_RECEIPTS = RECEIPTS / "models"
PLOTS = REPORTS / "plots"
SUMMARY, STATEMENT = REPORTS / "summary.json", REPORTS / "statement.json"
PAGE, CARD = REPORTS / "internal.html", REPORTS / "card.html"
SAMPLES = REPORTS / "samples.html"  # with private rows: no output of a stage, so that nothing keeps a copy
RATINGS = REPORTS / "ratings"  # sheets for people who judge rows, and what they said: no output of a stage either

RELEASE = Path("release")
PARAMS, GRAPH, LOCK = Path("params.yaml"), Path("dvc.yaml"), Path("dvc.lock")

DVC, _KEPT = Path(".dvc"), Path(".palimpsest")
SEEN = _KEPT / "seen"  # what commands worked out, to answer at once: only for display
SECONDS = SEEN / "seconds"  # that stages took: `<program>@<name>.json`
RUNNING, READING = _KEPT / "run.lock", _KEPT / "reading"  # the lock of a run, and those of its readers
SERVING = _KEPT / "serve.lock"  # who runs it by a schedule

STAGES_RUNNING = _KEPT / "stages"  # the locks of stages at work
WORKERS = _KEPT / "workers"  # the locks of a cluster's workers on this machine

# Files that private stages write only from public files -> the one stage whose word on it counts.
PUBLIC_FILES: Mapping[str, str] = {
    "data/public/train.parquet": "preprocess",
    "data/public/heldout.parquet": "preprocess",
    "data/raw/public.jsonl": "world",
    "data/raw/public_test.jsonl": "world",
}
PUBLIC_MODELS = (BASE_LM, UNTOUCHED, TAUGHT, DECODERS, NEXT_TOKEN_LM)  # only of public text
# Written by stages that read private rows or answers about them.
MADE = (PRIVATE, SYNTHETIC, EVOLVED, SHARDS, MODELS)
# These, and where copies and secrets of a workspace lie: none of it may be named as public.
OWN = (*MADE, FACTS, REPORTS, RELEASE, DVC, _KEPT)
# Closed before a stage or a command reads what is in them. From then on only the owner can reach what is written below,
# whoever writes it and with whatever mode. A clone that `dvc pull` fills before that needs umask 077. The lock file
# names private files by their hashes.
CLOSED = (DATA, MODELS, REPORTS, DVC, _KEPT, LOCK)
