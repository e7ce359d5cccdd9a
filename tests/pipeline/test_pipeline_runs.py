"""The graph in a user's workspace: what runs again, what is charged, what a private row may reach."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dvc.output import Output
from dvc.repo import Repo
from typer.testing import CliRunner

import stages.dp_train
import stages.report
from palimpsest.cli.main import app
from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json
from palimpsest.params.load import load
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.report.page import verdicts
from palimpsest.report.sections import METRICS, SECTIONS, gallery
from palimpsest.report.sections.base import Page
from palimpsest.report.statement import read_total
from palimpsest.report.summary import summarise
from palimpsest.work.context import find_stale, stage_names
from stages.report import read_receipts, read_results
from tests.pipeline.place import MARKER, VARIANT, WRITTEN, Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

REPORT = "reports/internal.html"
TEXT = (".html", ".json", ".jsonl", ".csv", ".txt")
RECEIPT = f"reports/receipts/models/{VARIANT}.json"


def test_the_first_run_brings_everything_up_to_date(ran: Place):
    assert find_stale(ran.workspace) == set()
    assert {REPORT, "reports/statement.json", f"data/synthetic/{VARIANT}.parquet"} <= ran.files("reports", "data")


def test_the_first_run_charges_each_variant_once(ran: Place):
    charges = [(charge.variant, charge.query, charge.run, charge.state) for charge in ran.charges]
    asked = {name: ("label_histogram", "train") for name in (VARIANT, "inf")}
    asked[WRITTEN] = ("class_means", "label_histogram", "predict wave 0", "predict wave 1")
    assert sorted(charges) == [(name, query, 1, "committed") for name, queries in asked.items() for query in queries]


def test_waves_are_charged_for_disjoint_parts(ran: Place):
    waves = [charge for charge in ran.charges if charge.query.startswith("predict")]
    assert [wave.partition for wave in waves] == [("keyed batches", "0 to 5"), ("keyed batches", "5 to 10")]
    receipt = read_json(ran.workspace / f"reports/receipts/{WRITTEN}.json")
    assert receipt["accountant"] == "zcdp"
    assert 0.4 < receipt["epsilon"] <= 0.5  # two waves in sequence would be above


def test_a_run_states_the_milestone_that_it_has_not_passed_and_never_where_its_filter_stands(ran: Place):
    """`init` counts in Gaussian DP, and proposed milestones from its one variant; this workspace has two more."""
    proposed = load(ran.workspace).privacy.budget.milestones
    total = read_total(read_json(ran.workspace / "reports/statement.json"))
    assert (total.counted, total.status) == ("gdp", "proved")
    assert total.epsilon in (*proposed, total.cap)
    assert 0.5 < total.stands_at < total.epsilon
    assert total.sentence in (ran.workspace / REPORT).read_text(encoding="utf-8")
    assert total.sentence.split(". ")[0] in " ".join(ran.run("palimpsest", "ledger")[1].split())


def test_the_receipts_hold(ran: Place, entered: Callable[[Place], Place]):
    assert verify_workspace(entered(ran).workspace) == 0


def test_the_command_line_shows_the_result(ran: Place, entered: Callable[[Place], Place]):
    done = CliRunner().invoke(app, ["report", "--workspace", str(entered(ran).workspace)])
    assert done.exit_code == 0, done.output
    assert "public_only" in done.output
    assert VARIANT in done.output


def test_every_metric_file_of_the_run_is_shown(ran: Place, entered: Callable[[Place], Place]):
    """Read by the types that wrote them; the page leaves nothing out, and no column of what was measured is empty."""
    params = load(entered(ran).workspace)
    found = read_results(params)
    written = {path for path in ran.files("reports/metrics") if path.endswith(".json")}
    read = {f"reports/metrics/{metric.file(name)}" for metric in METRICS for name in found.of(metric)}
    assert read == written - {"reports/metrics/pretrain.json"}
    receipts, books = read_receipts(params.run.evaluate), ledger_summary(ran.ledger.books(), "tickets")
    page = Page(summarise(found, receipts, books), found, receipts, books)
    shown = {figure.title.replace(VARIANT, "{}") for figure in gallery(page)}
    assert shown >= {
        "Between what is proved and what was attacked", "Membership attacks on {}", "Words that one record alone has",
        "Membership attacks on the rows of {} alone", "Overlap of {} with members, holdout and public text",
        "Excess over a holdout that nothing ever saw", "Members and secrets that the rows repeat",
        "Singling out, linkability, inference", "Usefulness for its privacy, by tfidf_lr", "Every class, by tfidf_lr",
        "Labels that a forest reads off hidden states", "Hidden states of real test rows",
        "How like the private rows the synthetic ones are, as sets", "How often each label occurs",
        "How long the rows are", "Where the budget went",
    }  # fmt: skip
    columns = [(column.name, [column.cell(line) for line in verdicts(page).lines]) for column in verdicts(page).columns]
    silent = {name for name, cells in columns if not any(cells)}
    assert silent == {"Facts carried", "Leaked"}  # of the invented world alone
    tables = {table.title for section in SECTIONS for table in section.tables(page) if table.lines}
    assert tables == {
        "Tests of the claims", "Attacks tried on planted copies", "What was written", "Do the rows fit their labels?",
    }  # fmt: skip


def test_a_second_run_runs_nothing_and_charges_nothing(again: Place):
    head = again.ledger.head()
    code, output = again.run("dvc", "repro")
    assert code == 0
    assert re.findall("Running stage '(.*)'", output) == ["inputs"]  # which always looks, and found nothing new
    assert output.count("didn't change, skipping") == len(stage_names(again.workspace)) - 1
    assert again.ledger.head() == head


def test_a_cache_that_was_lost_or_torn_makes_nothing_stale_and_is_whole_again(again: Place):
    objects = sorted(path for path in (again.workspace / ".dvc/cache/files").rglob("*") if path.is_file())
    before = {path: path.read_bytes() for path in objects}
    for number, path in enumerate(objects):
        path.unlink()
        if number % 2:
            path.write_bytes(before[path][:-1] + b"?")
    assert find_stale(again.workspace) == set()
    assert {path: path.read_bytes() for path in objects} == before


def test_a_model_that_changes_makes_stale_what_depends_on_it_alone(again: Place):
    again.edit("lms", VARIANT, epsilon=0.6)
    names = (
        "dp_train", "embedding_audit", "pplm_generate", "downstream_eval", "mia", "ngram_audit", "text_mia",
        "memorisation_audit", "anonymity_audit", "fidelity_audit",
    )  # fmt: skip
    assert find_stale(again.workspace) == {f"{name}@{VARIANT}" for name in names} | {"report", "release"}


def test_a_first_page_replaces_the_page_and_not_what_a_link_shares_with_it(again: Place):
    page, kept = again.workspace / REPORT, again.home / "in the cache"
    os.link(page, kept)
    last, others = page.read_bytes(), again.files("reports") - {REPORT, "reports/summary.json"}
    written = {path: (again.workspace / path).stat().st_mtime_ns for path in others}
    code, output = again.stage(stages.report, f"reports/metrics/{VARIANT}/fidelity.json")
    assert code == 0, output
    assert f"Still to come: fidelity ({VARIANT})." in page.read_text()
    assert kept.read_bytes() == last
    assert page.stat().st_mode & 0o077 == 0
    assert {path: (again.workspace / path).stat().st_mtime_ns for path in others} == written
    assert find_stale(again.workspace) == {"report"}  # whose last page comes in place of this one


def test_a_deleted_report_brings_back_the_report_alone(again: Place):
    head, page = again.ledger.head(), (again.workspace / REPORT).read_bytes()
    (again.workspace / REPORT).unlink()
    assert find_stale(again.workspace) == {"report"}
    code, output = again.run("dvc", "repro")
    assert code == 0
    assert re.findall("Running stage '(.*)'", output) == ["inputs"]  # the page came from the cache
    assert output.count("didn't change, skipping") == len(stage_names(again.workspace)) - 2
    assert (again.workspace / REPORT).read_bytes() == page
    assert again.ledger.head() == head


def test_deleted_outputs_come_back_from_the_cache_and_charge_nothing(again: Place):
    head = again.ledger.head()
    forget(again)
    code, output = again.run("dvc", "repro", f"dp_train@{VARIANT}")
    assert code == 0, output
    assert (again.workspace / RECEIPT).is_file()
    assert again.ledger.head() == head


def test_a_second_look_is_charged_again_and_says_so(again: Place):
    spent = again.ledger.balance("tickets").spent
    forget(again)
    shutil.rmtree(again.workspace / ".dvc" / "cache")
    assert f"dp_train@{VARIANT}" in find_stale(again.workspace)
    code, output = again.stage_again(stages.dp_train, VARIANT)
    assert code == 0, output
    assert "this plan already ran 1 time(s) on this data; another look is charged again" in output
    assert [charge.run for charge in again.charges if charge.variant == VARIANT] == [1, 1, 2, 2]
    assert read_json(again.workspace / RECEIPT)["run"] == 2
    assert again.ledger.balance("tickets").spent > spent


def test_no_private_text_leaves_the_private_files(ran: Place):
    assert MARKER in (ran.workspace / "data/private/train.parquet").read_bytes().decode("latin-1")
    rows = [MARKER, *(row for row in ran.private_rows if len(row) > 40)]
    places = [path for path in ran.files("reports", "models", "data/public", "data/synthetic") if path.endswith(TEXT)]
    assert {REPORT, RECEIPT, "reports/statement.json"} <= set(places)
    told = {path: (ran.workspace / path).read_text(errors="replace") for path in (*places, "dvc.lock")}
    told |= {"output": ran.output, "ledger": ran.books.read_bytes().decode("latin-1")}
    assert [name for name, text in told.items() for row in rows if row in text] == []


def test_a_push_takes_no_private_output(again: Place, tmp_path: Path):
    for arguments in (["remote", "add", "--default", "store", str(tmp_path)], ["push"]):
        code, output = again.run("dvc", *arguments)
        assert code == 0, output
    pushed = {"".join(path.parts[-2:]) for path in tmp_path.rglob("*") if path.is_file()}
    with Repo(str(again.workspace)) as repo:
        outputs = [out for stage in repo.index.stages for out in stage.outs if out.use_cache]
        public = {name for out in outputs if out.can_push for name in hashes(again, out)}
        private = {name for out in outputs if not out.can_push for name in hashes(again, out)}
    assert pushed == public
    assert len(private - public) > 20


def forget(place: Place) -> None:
    """Delete what the private stage of the release wrote."""
    shutil.rmtree(place.workspace / "models" / VARIANT)
    (place.workspace / RECEIPT).unlink()


def hashes(place: Place, out: Output) -> Iterator[str]:
    """The names in the cache of an output: of a folder, its own and its files'."""
    name = out.hash_info.value
    yield name
    if name.endswith(".dir"):
        listing = place.workspace / ".dvc/cache/files/md5" / name[:2] / name[2:]
        yield from (entry["md5"] for entry in json.loads(listing.read_text()))
