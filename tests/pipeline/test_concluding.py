"""No audit of private rows ends a run: whatever it meets, the page says so and the release is there."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import stages.release
import stages.report
from palimpsest.audit.inconclusive import Inconclusive, read_inconclusive
from palimpsest.files import read_json, write_json
from palimpsest.graph.stage import BELOW, NAME, Stage
from palimpsest.graph.stages import STAGES
from palimpsest.params.load import load
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import write_public, write_split
from palimpsest.report.release import keys, word
from palimpsest.report.sections.membership import RISKS
from palimpsest.workspace import METRICS, PAGE, PRIVATE, PUBLIC, PUBLIC_LM, RELEASE, STATEMENT, SUMMARY, Zone
from stages.report import read_results
from stages.warm import serve_stages
from tests.pipeline.place import VARIANT, Place
from tests.report.release_world import VARIANT as RELEASED
from tests.report.release_world import copied, inside, released

# Every stage that measures private rows, or rows that may be those of a reference.
AUDITS = [
    stage for stage in STAGES
    if stage.metrics and stage.receipt is None and stage.zone != Zone.PUBLIC
    and stage.name not in ("pplm_generate", "public_eval", "report")
]  # fmt: skip


# Those that guess which records were read.
GUESSING = ("mia", "shadow_mia", "text_mia", "prompt_mia", "ngram_audit", "memorisation_audit", "anonymity_audit")
# Those whose measurements a run of rows alone, with their text and labels, asks for.
SHOWN = {
    "baseline_eval", "downstream_eval", "mia", "ngram_audit", "text_mia", "memorisation_audit", "anonymity_audit",
    "fidelity_audit", "facts_audit",
}  # fmt: skip
_ROW = "the vase arrived in shards"
NONE_TO_GUESS = "the audit subset has no member or no non-member"
NO_WORD = "the audited texts hold no word for the control"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Place]:
    """A workspace that is ready to be released, entered; it has no private row yet, and no audit has run."""
    made = copied(released(), tmp_path)
    with inside(made):
        for kind in ("utility", "membership", "text_membership"):
            (METRICS / RELEASED / f"{kind}.json").unlink()
        yield Place(made.folder)


def conclude(own: Place, stage: Stage) -> str:
    """Run an audit: it ends well. What it printed."""
    arguments = stage.command.partition(stage.code)[2].replace(NAME, RELEASED).replace(BELOW, RELEASED).split()
    code, printed = own.stage(import_module(stage.code), *arguments)
    assert code == 0, printed
    return printed


def written(stage: Stage) -> set[Path]:
    """What the graph says that it writes."""
    declared = {Path(str(path).replace(NAME, RELEASED)) for path in (*stage.metrics, *stage.outs)}
    return declared - {METRICS / PUBLIC_LM / "utility.json"}  # of a named model alone


def drawn(own: Place) -> str:
    """Draw the page, as its stage does. What it says of these rows: code was examined on others."""
    code, printed = own.stage(stages.report)
    assert code == 0, printed
    page = PAGE.read_text(encoding="utf-8")
    for one in read_json(STATEMENT)["end_to_end"]:
        assert one["sentence"] in page
        page = page.replace(one["sentence"], "")
    return page


def release(own: Place) -> str:
    """The same, and release."""
    page = drawn(own)
    code, printed = own.stage(stages.release)
    assert code == 0, printed
    assert (RELEASE / "card.html").is_file()
    return page


def plant(rows: list[SplitRow], others: list[SplitRow]) -> None:
    """Members and others, and a public text."""
    for part, own in {"train": rows, "holdout": others, "test": others}.items():
        write_split(PRIVATE / f"{part}.parquet", own)
    write_public(PUBLIC / "train.parquet", [Record("a public text")])


@pytest.mark.parametrize("stage", AUDITS, ids=lambda stage: stage.name)
def test_an_audit_that_fails_says_so(stage: Stage, own: Place) -> None:
    """Nothing that it calls works, and no rule of its own foresees that."""
    printed = _fail(stage, own)
    assert printed.startswith("error: inconclusive, because the audit itself failed (")
    reasons = {_reason(path) for path in written(stage)}
    page = drawn(own)
    assert all(why.failed for why in reasons)
    assert [why.inconclusive in page for why in reasons] == [stage.name in SHOWN]
    assert "not refuted" not in page
    assert _ROW not in page + printed


def test_the_release_is_there_though_every_audit_fails(own: Place) -> None:
    for stage in AUDITS:
        _fail(stage, own)
    page = release(own)
    shown = {_reason(path).inconclusive for stage in AUDITS if stage.name in SHOWN for path in written(stage)}
    assert [why for why in shown if why not in page] == []


def _fail(stage: Stage, own: Place) -> str:
    """Run an audit in which nothing that it calls works: what it printed."""
    module = import_module(stage.code)
    with pytest.MonkeyPatch.context() as patch:
        for name, found in list(vars(module).items()):
            if _is_called(module.__name__, name, found):
                patch.setattr(module, name, _broken)
        return conclude(own, stage)


def _is_called(module: str, name: str, found: object) -> bool:
    ours = str(getattr(found, "__module__", "")).startswith(("palimpsest.", "palimpsest_lab.", "stages."))
    return ours and callable(found) and found.__module__ != module and name not in ("load", "metric")


def _broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError(_ROW)


def _reason(path: Path) -> Inconclusive:
    found = read_inconclusive(read_json(path))
    assert found is not None, path
    return found


@pytest.mark.parametrize("name", GUESSING)
def test_rows_that_allow_no_guess_end_no_run(name: str, own: Place) -> None:
    """Canned answers: nearly all have a near-duplicate, and the few that have none fell on one side."""
    plant([SplitRow("your parcel is late", "delivery")] * 40, [SplitRow("the bill is wrong", "billing", True)] * 5)
    (stage,) = (one for one in STAGES if one.name == name)
    printed = conclude(own, stage)
    assert printed.startswith(f"inconclusive, because {NONE_TO_GUESS}")
    (path,) = written(stage)
    assert not _reason(path).failed
    drawn(own)


def test_texts_without_a_word_end_no_run(own: Place) -> None:
    plant(*[[SplitRow(sign * number, "billing", True) for number in range(1, 20)] for sign in "!?"])
    (stage,) = (one for one in STAGES if one.name == "text_mia")
    assert conclude(own, stage).startswith(f"inconclusive, because {NO_WORD}")
    page = release(own)
    assert f"Inconclusive, because {NO_WORD}: text membership ({RELEASED})." in page
    assert f"Its text membership attack is inconclusive, because {NO_WORD}." in page
    assert "not refuted" not in page
    (row,) = (row for row in read_json(SUMMARY)["rows"] if row["variant"] == RELEASED)
    assert (row["verdict"], row["unsettled"]) == ("inconclusive", {"text_membership": NO_WORD})


def test_numbers_that_cannot_be_drawn_are_no_result_and_end_no_run(own: Place) -> None:
    """What an audit writes may be odder than its section foresees."""
    write_json(METRICS / RELEASED / "ngrams.json", {"zone": "internal", "orders": {"5": None}})
    code, printed = own.stage(stages.report)
    assert code == 0, printed
    assert printed.startswith("error: inconclusive, because ")
    page = release(own)
    assert f"ngrams ({RELEASED})" in page


# --- the runners -------------------------------------------------------------------------------------------------

_READ = ("load_guessed", "read_one_each", "read_guessed_each", "records_of", "real_rows")
_BROKEN = f"""
import importlib.machinery, sys

class Broken(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if name == "stages.audited":
            run = spec.loader.exec_module
            def broken(module):
                run(module)
                for each in {_READ}:
                    setattr(module, each, lambda *_: 1 / 0)
            spec.loader.exec_module = broken
        return spec

sys.meta_path.insert(0, Broken)
"""


@pytest.fixture(scope="module")
def releasing(ran: Place, copy: Callable[[Place], Place]) -> Place:
    """A workspace that has run, will release, and of which two audits are to be run again, for all."""
    place = copy(ran)
    place.edit("release", variants=[VARIANT], gates={"accuracy": None})
    keys.new_key(place.home / "release.pem")
    (place.home / "broken").mkdir()
    (place.home / "broken" / "sitecustomize.py").write_text(_BROKEN)
    cache = place.workspace / ".dvc" / "cache"
    shutil.rmtree(cache / "runs")  # or DVC takes their results from there
    for audit in ("anonymity", "membership"):  # without all that DVC has kept, all stages would run
        path = place.workspace / METRICS / VARIANT / f"{audit}.json"
        kept = hashlib.md5(path.read_bytes()).hexdigest()
        (cache / "files" / "md5" / kept[:2] / kept[2:]).unlink()
        write_json(path, {"zone": "internal", "inconclusive": "it is old", "remedy": "Wait.", "failed": True})
    return place


@pytest.fixture(scope="module")
def broken(releasing: Place) -> Iterator[dict[str, str]]:
    """What lets stages start warm, and without a way to read the audited rows."""
    path = {"PYTHONPATH": str(releasing.home / "broken")}
    with serve_stages({**releasing.variables, **path}) as warm:
        yield {**path, **warm}


@pytest.mark.parametrize(
    "runner", [("dvc", "repro"), ("palimpsest", "run", "--yes"), ("flows", ".")], ids=lambda one: one[0]
)
@pytest.mark.xdist_group("pipeline")  # or each worker makes a workspace that has run
@pytest.mark.timeout(900)
def test_no_runner_stops_at_audits_that_fail(
    runner: tuple[str, ...], releasing: Place, broken: dict[str, str], copy: Callable[[Place], Place]
) -> None:
    place = copy(releasing)
    told = {keys.VARIABLE: str(place.home / "release.pem"), word.VARIABLE: word.YES}
    code = place.start(*runner, **broken, **told).wait()
    output = place.output
    assert code == 0, output
    assert "error: inconclusive, because the audit itself failed (ZeroDivisionError at line" in output, output
    with place.entered():
        assert (RELEASE / "card.html").is_file()
        found = read_results(load())
        assert VARIANT in found.find_unsettled(RISKS)
        assert "ZeroDivisionError" in PAGE.read_text(encoding="utf-8")
