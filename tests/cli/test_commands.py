"""Every command on a small workspace in which no stage ran; charges are made by driving the ledger."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest
from cli_place import Place, call, init, write_files
from rich.console import Console
from typer.testing import CliRunner

from palimpsest.audit.statistics import Estimate
from palimpsest.cli.look import plan_table
from palimpsest.cli.main import app
from palimpsest.files import read_json, write_json
from palimpsest.methods.shared.method import TRAINED
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import LEDGER_VARIABLE, load
from palimpsest.privacy import accounting
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.privacy.ledger.rules import compose_charges
from palimpsest.privacy.ledger.summary import LedgerSummary, UsedOrder
from palimpsest.privacy.ledger.total import Total
from palimpsest.privacy.ledger.witness import VARIABLE
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.receipt import Group
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered, receipt
from palimpsest.privacy.shown import delta_down, up
from palimpsest.privacy.view import PrivateView
from palimpsest.report.results import Excess, Fraction, Membership, Row, Score, Summary
from palimpsest.work import look
from palimpsest.work.console import Rows, show
from palimpsest.work.context import find_upstream, open_workspace, stage_names
from palimpsest.work.look import StatusSummary, page_of, result_tables
from palimpsest.work.plan import Cost, PlanLine, PlanSummary, balance_after, price_all
from palimpsest.workspace import PAGE, SEEN, SUMMARY
from stages.common import note
from tests.reading import reading

RUN = Run("dp_train", "dp3", "release", "data", "plan")


def charged(place: Place) -> Path:
    """Ask one real query, as the fit stage does, and write its receipt."""
    params, ledger = load(place.workspace), Ledger.open(f"sqlite:///{place.ledger}")
    query = LabelHistogram(labels=("a", "b"), sigma=4.0)
    rows = [PrivateRow("some text", "a")]
    asked = [PlannedQuery(query.name, query.event())]
    run = reading(RUN, ledger, "notes", rows)
    with metered(ledger, params.schema_of_data, run, asked, lambda: rows, NoiseSource()) as session:
        session.view.ask(query)
    body = receipt(ledger, ledger.asset("notes"), session, method="dp_lm", target=3.0)
    for path in receipts(place):
        write_json(path, body.to_json())
    return receipts(place)[0]


def reserved(place: Place) -> None:
    """Let a run of the data set reserve one query."""
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    ledger.reserve("notes", RUN, [PlannedQuery("votes", dpa.GaussianDpEvent(20.0))])


def receipts(place: Place) -> tuple[Path, Path]:
    """The receipt of the variant, and the model's, which it repeats."""
    folder = place.workspace / "reports" / "receipts"
    return folder / "dp3.json", folder / "models" / "dp3.json"


def attack(name: str, auc: float) -> Membership:
    interval, rate = Estimate(auc, auc - 0.031, auc + 0.031), Estimate(0.01, 0.0, 0.03)
    return Membership(name, interval, rate, 0.1, 2.0, True, "inconclusive", 0.8)


def row(variant: str, role: str, epsilon: float | None, scores: tuple[Score, ...]) -> Row:
    attacked = role in ("release", "reference")
    return Row(
        variant=variant, role=role, method="dp_lm", rows=1000,
        epsilon_target=epsilon, epsilon_proved=epsilon, token_epsilon=3.0 if variant == "words" else None,
        scores=scores,
        audits={"membership": attack("loss", 0.512), "text_membership": attack("ngram", 0.507)} if attacked else {},
        ngram_excess=Excess(5, Estimate(0.0042, -0.001, 0.0101), 0.3, judges=True) if attacked else None,
        facts_carried=Fraction(12, 38) if attacked else None,
        individual_leaked=Fraction(0, 400) if attacked else None,
        canaries_leaked=Fraction(0, 20) if attacked else None,
        verdict="inconclusive" if attacked else None,
    )  # fmt: skip


def summary() -> Summary:
    def scores(kept: Estimate | None, closed: Estimate | None) -> tuple[Score, ...]:
        accuracy = Estimate(0.8, 0.78, 0.82)
        return tuple(Score(name, accuracy, kept, closed, None) for name in ("tfidf_lr", "minilm_lr"))

    rows = (
        row("dp3", "release", 2.9971, scores(Estimate(0.8123, 0.7012, 0.9034), Estimate(0.51, 0.42, 0.63))),
        row("inf", "reference", None, scores(Estimate(0.95, 0.93, 0.97), None)),
        row("words", "reference", None, scores(Estimate(0.7, 0.6, 0.8), None)),
        row("real", "real", None, scores(Estimate(1.0, 1.0, 1.0), None)),
        row("public_only", "public_only", None, scores(Estimate(0.6, 0.5, 0.7), None)),
    )
    ledger = LedgerSummary(
        asset="notes", unit="record", delta=1e-4, cap_epsilon=9.0, caps=(), filter=UsedOrder(2.0, 0.0, (2.0,)),
        spent_epsilon=4.7, left_epsilon=4.3, charges=(), shown_head="", head="", entries=0, verified=True,
        after_loss=False, total=Total("renyi", 1e-4, 4.7, None, 9.0, raised=False, holds=True),
    )  # fmt: skip
    return Summary(rows, ledger)


def test_a_plan_needs_neither_data_nor_base_model_and_prices_every_variant(place: Place) -> None:
    place.edit("lms", inf={"epsilon": float("inf")})
    place.edit("variants", inf={"method": "dp_lm"})
    (place.home / "own.csv").unlink()
    done = place.call("plan")
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("dp_train@dp3 ")]
    pld, rdp, cost = re.findall(r"epsilon (\d\.\d+) \(pld\)  epsilon RDP (\d\.\d+)  budget cost (\d\.\d+)", line)[0]
    assert 2.99 < float(pld) <= 3.0 < float(cost) < 3.3
    assert float(rdp) > 3.0
    assert "will run – min  it has not run here" in line
    assert f"after the pending runs {cost}: fits." in " ".join(done.stdout.split())
    (free,) = [line for line in done.stdout.splitlines() if line.startswith("dp_train@inf ")]
    assert "budget cost 0.000" in free
    assert "Budget cost: what one run adds" in done.stdout
    assert not set("─│┃╭\x1b") & set(done.stdout), "a pipe gets plain lines"
    assert not (place.workspace / "models").exists()


def test_a_plan_fits_on_eighty_columns_of_a_terminal(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads(place.call("plan", "--json").stdout)
    assert summary.keys() == {field.name for field in fields(PlanSummary)}
    (line,) = summary["lines"]
    assert line.keys() == {field.name for field in fields(PlanLine)}
    cost = Cost(**{**line["cost"], "notes": ()})
    out = Console(width=80, force_terminal=True, color_system=None, highlight=False)
    show(out, plan_table(TRAINED, [PlanLine(**{**line, "cost": cost})], whole=False))
    drawn = capsys.readouterr().out
    assert "dp_lm release" in drawn
    assert max(map(len, drawn.splitlines())) <= 80


def test_a_plan_tells_the_minutes_of_what_was_measured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.workspace)
    note("dp_train", "dp3", 90.0)
    told = json.loads(place.call("plan", "--json").stdout)
    assert (told["minutes"], told["lines"][0]["minutes"]) == ({"dp_train@dp3": 1.5}, 1.5)
    total = 1 + told["unmeasured"]
    lines = place.call("plan").stdout.splitlines()
    memory = f"The largest took {told['memory']:.1f} GiB of memory."
    assert f"Expected: 1.5 min for what was measured here, 1 of {total} stages. {memory}" in lines
    assert "will run 1.5 min  it has not run here" in lines[0]


def test_a_plan_says_what_is_left_of_the_share_of_a_team(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(place.call("plan", "--json").stdout)["team"] is None
    assert place.call("ledger", "team", "research", "0.5").exit_code == 0
    done = place.call("run", "--yes")
    assert done.exit_code == 1
    assert "is shared by the teams research; this run names none." in done.stderr
    monkeypatch.setenv("PALIMPSEST_TEAM", "research")
    share = json.loads(place.call("plan", "--json").stdout)["team"]
    assert (share["name"], share["cap"], share["spent"]) == ("research", 0.5, 0.0)
    assert f"spent 0.000, after the pending runs {up(share['after'])}: does not fit." in place.call("plan").stdout
    done = place.call("run", "--yes")
    assert done.exit_code == 1
    assert "would pass the share of team 'research' in asset 'notes'" in done.stderr
    assert place.call("ledger", "team", "research", "8").exit_code == 0
    assert f"after the pending runs {up(share['after'])}: fits." in place.call("plan").stdout


def test_what_was_kept_for_the_eye_is_not_what_is_charged(place: Place) -> None:
    place.edit("privacy", "budget", epsilon=2.0)
    assert place.call("register", "--amend").exit_code == 0
    assert json.loads(place.call("plan", "--json").stdout)["fits"] is False
    kept = place.workspace / SEEN / "plan.json"
    body = read_json(kept)
    value = body["value"]
    write_json(kept, {**body, "value": {**value, "after": {**value["after"], "spent": 0.0}}})
    assert json.loads(place.call("plan", "--json").stdout)["fits"] is True, "shown as it was edited"
    done = place.call("run")
    assert (done.exit_code, "Nothing was charged" in done.stderr) == (1, True)


@pytest.mark.parametrize("epsilon", [51.0, 1000.0])
def test_an_epsilon_that_protects_nobody_is_refused_at_once(place: Place, epsilon: float) -> None:
    place.edit("lms", "dp3", epsilon=epsilon)
    done = place.call("plan")
    assert (done.exit_code, "is no protection" in done.stderr) == (1, True)


@pytest.mark.parametrize("epsilon", [0.001, 1e-9])
def test_an_epsilon_whose_noise_cannot_be_found_is_refused_at_once(place: Place, epsilon: float) -> None:
    place.edit("lms", "dp3", epsilon=epsilon)
    done = place.call("plan")
    assert (done.exit_code, "is too small; noise is worked out from 0.01 up" in done.stderr) == (1, True)
    place.edit("lms", "dp3", epsilon=accounting.LEAST_TARGET)
    assert place.call("plan").exit_code == 0


def test_a_cost_is_what_the_next_run_adds_to_the_total(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))

    def added() -> float:
        context = open_workspace(place.workspace)
        return balance_after(context, price_all(context)).spent - context.ledger.balance("notes").spent

    alone = added()
    charged(place)
    assert 0 < added() < alone


def test_an_attempt_of_before_the_last_settings_is_no_part_of_what_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an attempt at a run reserved is used by the next; what one with other settings reserved stays beside it."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    context = open_workspace(place.workspace)
    (item,) = (replace(one, run=RUN) for one in price_all(context))

    def after() -> float:
        return balance_after(context, [item]).spent

    free = after()
    context.ledger.reserve("notes", RUN, list(item.plan.queries))
    assert after() == pytest.approx(free)
    context.ledger.reserve("notes", replace(RUN, plan="other settings"), list(item.plan.queries))
    assert after() > 1.2 * free
    tried = context.ledger.reserve(
        "notes", replace(RUN, plan="third"), [PlannedQuery("walk", dpa.GaussianDpEvent(5.0))]
    )
    context.ledger.refund(tried.charges)
    both = after()
    assert both > 1.2 * free, "what was given back hides nothing"


def test_deltas_beside_the_events_are_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of delta is there for them where the total is counted in Renyi divergences, whatever epsilon is left."""
    place = Place(write_files(tmp_path / "home"))
    assert init(place.home, place.workspace, filter="renyi").exit_code == 0
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    ledger.reserve("notes", RUN, [PlannedQuery("picks", dpa.ZCDpEvent(0.001), own_delta=3e-5)])
    context = open_workspace(place.workspace)
    (item,) = price_all(context)
    plan = replace(item.plan, queries=(PlannedQuery("more", dpa.ZCDpEvent(0.001), own_delta=2.5e-5),))
    assert balance_after(context, [item]).beside == pytest.approx(3e-5)
    assert balance_after(context, [replace(item, plan=plan)]).beside == pytest.approx(5.5e-5)
    said = " ".join(place.call("plan").stdout.split())
    most = context.asset.beside_delta
    assert f"Deltas that no event carries: 3e-05 after the pending runs, of at most {delta_down(most)}." in said


def test_a_status_shows_no_less_than_is_spent_and_no_more_than_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "summarise_status", lambda _: StatusSummary("notes", 1e-4, 10.0, 9.14238, 0.85762, ()))
    assert "epsilon 9.143 spent, 0.857 left of 10 at" in place.call("status").stdout


def test_to_register_once_more_says_what_is_spent(place: Place) -> None:
    """Another workspace of the asset has the same budget, and is told so before its first run."""
    said = "notes: epsilon {} of it is spent already"
    assert "spent" not in place.call("register").stdout
    charged(place)
    spent = Ledger.open(f"sqlite:///{place.ledger}").balance("notes").spent
    assert spent > 0
    assert said.format(up(spent)) in place.call("register").stdout
    assert said.format(up(spent)) in init(place.home, place.home / "other").stdout


def test_what_does_not_fit_is_said_and_not_run(place: Place) -> None:
    place.edit("privacy", "budget", epsilon=2.9)
    assert place.call("register", "--amend").exit_code == 0
    assert "does not fit" in " ".join(place.call("plan").stdout.split())
    done = place.call("run")
    assert (done.exit_code, "Nothing was charged" in done.stderr) == (1, True)
    assert json.loads(place.call("ledger", "--json").stdout)["charges"] == []


def test_flags_are_shown(place: Place) -> None:
    place.edit("testing", noise_seed=1)
    assert "NOTHING made by this run is private" in " ".join(place.call("plan").stdout.split())


def test_the_cap_changes_only_by_amending(place: Place) -> None:
    place.edit("privacy", "budget", epsilon=12.0)
    for command in ("plan", "ledger", "status", "report", "verify", "run"):
        done = place.call(command)
        assert (done.exit_code, "register --amend" in done.stderr) == (1, True)
    assert place.call("register").exit_code == 1
    assert "budget of epsilon 12" in place.call("register", "--amend").stdout
    assert place.call("ledger").exit_code == 0


@pytest.mark.parametrize("command", ["register", "plan", "run", "status", "verify", "report"])
def test_an_asset_of_records_that_gains_a_unit_column_is_closed(place: Place, command: str) -> None:
    charged(place)
    (place.home / "own.csv").unlink()  # whatever opened it would fail in another way
    place.edit("dataset", "unit", column="team", persons=600)
    _is_closed(place, command, "registered for one record as the unit of privacy")


@pytest.mark.parametrize("command", ["register", "plan", "run"])
def test_an_asset_of_persons_is_closed_to_those_of_another_column_and_to_records(tmp_path: Path, command: str) -> None:
    home = write_files(tmp_path / "home")
    assert init(home, home / "work", unit="team", persons=100, max_rows=2).exit_code == 0
    place = Place(home)
    place.edit("dataset", "unit", max_rows=5)
    assert place.call("register").exit_code == 0
    reserved(place)
    (home / "own.csv").unlink()
    for unit in ({"column": "who"}, {"column": None, "max_rows": 1, "persons": None}):
        place.edit("dataset", "unit", **unit)
        _is_closed(place, command, "registered for the person in column 'team' as the unit of privacy")


def _is_closed(place: Place, command: str, problem: str) -> None:
    before = Ledger.open(f"sqlite:///{place.ledger}").books().entries
    done = place.call(command)
    words = " ".join(done.stderr.split())
    assert (done.exit_code, problem in words, "closed to another unit" in words) == (1, True, True)
    assert Ledger.open(f"sqlite:///{place.ledger}").books().entries == before


def test_the_cap_is_amended_as_soon_as_it_is_written(place: Place) -> None:
    place.edit("privacy", "budget", epsilon=12.0)
    (place.workspace / RESOLVED).unlink()  # nothing is rendered between
    assert "budget of epsilon 12" in place.call("register", "--amend").stdout


def test_the_cap_is_not_amended_for_another_unit(place: Place) -> None:
    reserved(place)
    place.edit("dataset", "unit", column="team", persons=600)
    place.edit("privacy", "budget", epsilon=12.0)
    _is_closed(place, "register", "registered for one record")
    assert place.call("register", "--amend").exit_code == 1
    assert Ledger.open(f"sqlite:///{place.ledger}").asset("notes").epsilon == 9


def test_the_plan_says_for_whom_it_holds(tmp_path: Path, place: Place) -> None:
    assert "adding or removing one record" in " ".join(place.call("plan").stdout.split())
    home = write_files(tmp_path / "another")
    assert init(home, home / "work", unit="team", persons=600).exit_code == 0
    assert "adding or removing one person" in " ".join(Place(home).call("plan").stdout.split())


def test_status_names_every_stage_and_what_is_left(place: Place) -> None:
    done = place.call("status")
    assert done.exit_code == 0, done.output
    assert {"preprocess", "dp_train@dp3", "report"} <= {
        line.split()[0] for line in done.stdout.splitlines() if line.strip()
    }
    assert "9.000 left of 9" in done.stdout


def test_the_ledger_lists_charges_on_eighty_columns(place: Place) -> None:
    charged(place)
    done = place.call("ledger", "--verify")
    assert "label_histogram" in done.stdout
    assert "committed" in done.stdout
    assert "whole" in done.stdout
    books = json.loads(place.call("ledger", "--json").stdout)
    assert [(line["variant"], line["state"]) for line in books["charges"]] == [("dp3", "committed")]


def test_only_what_never_began_is_refunded(place: Place) -> None:
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    query = LabelHistogram(labels=("a", "b"), sigma=4.0)
    (charge,) = ledger.reserve("notes", RUN, [PlannedQuery(query.name, query.event())]).charges
    assert place.call("ledger", "--refund", "nothing").exit_code == 1
    assert "refunded" in place.call("ledger", "--refund", charge.id[:8]).stdout
    assert ledger.balance("notes").spent == 0
    assert place.call("ledger", "--refund", charge.id[:8]).exit_code == 1


def test_a_receipt_of_a_real_run_verifies(place: Place) -> None:
    assert place.call("verify").exit_code == 0
    charged(place)
    done = place.call("verify")
    assert done.exit_code == 0, done.output
    assert "dp3: the receipt is the ledger's" in " ".join(done.stdout.split())


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body.update(values)


EDITS = {
    "epsilon": _set(epsilon=0.1),
    "other accountant": _set(epsilon_rdp=9.0),
    "delta": _set(delta=1e-9),
    "purpose": _set(purpose="reference"),
    "unit": _set(unit="person"),
    "variant": _set(variant="dp1"),
    "seed": _set(noise_fixed=True),
    "target": _set(epsilon_target=1e-3),
    "no target": _set(epsilon_target=None),
    "no query": _set(queries=[]),
    "group": lambda body: body["group"][-1].update(epsilon=0.2),
    "curve": lambda body: body["curve"]["beta"].__setitem__(3, 1.0),
    "part": lambda body: body["queries"][0].update(partition=["batch", "0"]),
    "accountant": _set(accountant="zcdp"),
    "another charge": lambda body: body["queries"][0].update(charge="0" * 32),
    "event": lambda body: body["queries"][0]["event"].update(type="none"),
    "name": lambda body: body["queries"][0].update(name="nothing"),
    "state": lambda body: body["queries"][0].update(state="refunded"),
    "witness": _set(ledger_head="0" * 64),
    "field cut": lambda body: body.pop("curve"),
    "purpose cut": lambda body: body["queries"][0].pop("purpose"),
    "head cut": lambda body: body.pop("ledger_head"),
    "purpose of a charge": lambda body: body["queries"][0].update(purpose="reference"),
    "null": _set(epsilon=None),
}


@pytest.fixture(scope="module")
def ran(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A workspace with one charge and its receipt."""
    home = tmp_path_factory.mktemp("ran") / "home"
    shutil.copytree(made, home)
    charged(Place(home))
    return Place(home)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_receipt_fails(ran: Place, edit: Callable[[dict[str, Any]], None]) -> None:
    kept = [path.read_bytes() for path in receipts(ran)]
    for path in receipts(ran):
        body = read_json(path)
        edit(body)
        write_json(path, body)
    done = ran.call("verify")
    for path, content in zip(receipts(ran), kept, strict=True):
        path.write_bytes(content)
    assert done.exit_code == 1
    assert "Traceback" not in done.output


def charged_in_parts(place: Place) -> list[Charge]:
    """Ask two parts of the data set, the first one twice, and write the receipt."""
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    token = dpa.SelfComposedDpEvent(dpa.ZCDpEvent(0.0005), 31)
    asked = [PlannedQuery("votes", token, partition=("batch", cell)) for cell in ("0", "0", "1")]
    reservation = ledger.reserve("notes", RUN, asked)
    for charge in reservation.charges:
        ledger.begin(charge)
    ledger.commit(reservation)
    view = PrivateView([], load(place.workspace).schema_of_data, ledger, reservation, NoiseSource())
    session = Session(reservation, 0.0, view)
    body = receipt(ledger, ledger.asset("notes"), session, method="dp_lm", target=3.0)
    for path in receipts(place):
        write_json(path, body.to_json())
    return list(reservation.charges)


def moved(place: Place, charges: list[Charge], partition: tuple[str, str]) -> None:
    """Claim in the receipts that the second charge is of another part, and everything that would follow."""
    event = compose_charges(
        [charge if i != 1 else replace(charge, partition=partition) for i, charge in enumerate(charges)]
    )
    delta = Ledger.open(f"sqlite:///{place.ledger}").asset("notes").delta
    for path in receipts(place):
        body = read_json(path)
        body["queries"][1]["partition"] = list(partition)
        body["epsilon"], body["epsilon_rdp"] = (accounting.epsilon(event, delta, name) for name in (None, "rdp"))
        body["group"] = [
            {"k": r["k"], "epsilon": accounting.group_epsilon(event, r["k"], delta)} for r in body["group"]
        ]
        body["curve"] = dict(zip(("alpha", "beta"), accounting.trade_off(event), strict=True))
        write_json(path, body)


def test_a_receipt_over_parts_verifies_and_names_its_accountant(place: Place) -> None:
    charged_in_parts(place)
    done = place.call("verify")
    assert done.exit_code == 0, done.output
    assert "both accountants (ZCDP, RDP) give its epsilon" in " ".join(done.stdout.split())


def test_a_receipt_of_one_accountant_does_not_claim_two(place: Place) -> None:
    ledger = Ledger.open(f"sqlite:///{place.ledger}")
    reservation = ledger.reserve("notes", RUN, [PlannedQuery("votes", dpa.ZCDpEvent(0.01, 0.01))])
    ledger.begin(reservation.charges[0])
    ledger.commit(reservation)
    view = PrivateView([], load(place.workspace).schema_of_data, ledger, reservation, NoiseSource())
    body = receipt(ledger, ledger.asset("notes"), Session(reservation, 0.0, view), method="dp_lm", target=3.0)
    for path in receipts(place):
        write_json(path, body.to_json())
    done = place.call("verify")
    assert done.exit_code == 0, done.output
    assert "one accountant that takes all of its events (RDP)" in " ".join(done.stdout.split())
    assert "both accountants" not in done.stdout


def test_a_receipt_with_a_delta_beside_its_event_verifies_and_one_that_forgets_it_fails(place: Place) -> None:
    ledger, event = Ledger.open(f"sqlite:///{place.ledger}"), dpa.ZCDpEvent(0.01)
    reservation = ledger.reserve("notes", RUN, [PlannedQuery("picks", event, own_delta=2e-5)])
    ledger.begin(reservation.charges[0])
    ledger.commit(reservation)
    view = PrivateView([], load(place.workspace).schema_of_data, ledger, reservation, NoiseSource())
    asset = ledger.asset("notes")
    body = receipt(ledger, asset, Session(reservation, 0.0, view), method="dp_lm", target=3.0)
    assert body.epsilon == accounting.epsilon(event, asset.delta - 2e-5)
    for path in receipts(place):
        write_json(path, body.to_json())
    done = place.call("verify")
    assert done.exit_code == 0, done.output
    rows = tuple(Group(row.k, accounting.group_epsilon(event, row.k, asset.delta)) for row in body.group)
    for path in receipts(place):
        write_json(path, replace(body, epsilon=accounting.epsilon(event, asset.delta), group=rows).to_json())
    said = " ".join(place.call("verify").output.split())
    assert "by the charges" in said
    assert "the epsilons of its groups are others" in said


@pytest.mark.parametrize("partition", [("batch", "1"), ("batch", "2"), ("label", "0")])
def test_two_charges_of_one_part_claimed_to_be_of_two_fail(place: Place, partition: tuple[str, str]) -> None:
    moved(place, charged_in_parts(place), partition)
    done = place.call("verify")
    said = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "is of another part of the data set in the ledger" in said
    assert ("by the charges" in said) == (partition == ("batch", "2"))  # the others claim no less than was spent


def test_a_variant_that_does_not_repeat_its_model_s_receipt_fails(ran: Place) -> None:
    path = receipts(ran)[0]
    kept = path.read_bytes()
    write_json(path, read_json(path) | {"seconds": 99.0})
    done = ran.call("verify")
    path.write_bytes(kept)
    assert (done.exit_code, "as it was last fitted" in done.output) == (1, True)


def test_a_receipt_that_is_no_json_fails(ran: Place) -> None:
    path = ran.workspace / "reports" / "receipts" / "dp3.json"
    kept = path.read_bytes()
    path.write_text("{")
    done = ran.call("verify")
    path.write_bytes(kept)
    assert (done.exit_code, "not JSON" in done.stderr) == (1, True)


def test_a_ledger_without_its_newest_entries_is_noticed(place: Place) -> None:
    charged(place)
    with closing(sqlite3.connect(place.ledger)) as books, books:
        books.execute("DELETE FROM palimpsest_entry WHERE seq = (SELECT max(seq) FROM palimpsest_entry)")
    done = place.call("verify")
    assert (done.exit_code, "lacks 1 of the entries" in done.stderr) == (1, True)


def test_without_a_report_the_way_to_one_is_told(place: Place) -> None:
    done = place.call("report")
    assert (done.exit_code, "palimpsest run" in done.stderr) == (1, True)


def test_the_page_is_told_by_its_name_where_dvc_has_put_a_link(place: Place) -> None:
    kept = place.workspace / ".dvc" / "cache" / "ab"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("<html>")
    write_json(place.workspace / SUMMARY, summary().table({}, ()).to_json())
    (place.workspace / PAGE).symlink_to(kept)
    told = Path(place.call("report").stdout.partition("Report (private zone): ")[2].strip())
    assert (told, told.read_text()) == (place.workspace.resolve() / PAGE, "<html>")
    assert page_of(place.workspace) == told


@pytest.mark.parametrize("width", [80, 140])
def test_the_final_table_is_whole_at_its_width(place: Place, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    write_json(place.workspace / "reports" / "summary.json", summary().table({}, ()).to_json())
    done = place.call("report")
    assert done.exit_code == 0, done.output
    words = [
        "public_only", "2.998", "∞", "word", "tfidf_lr", "minilm_lr", "81.2%", "70 to 90%", "51.0%", "42 to 63%", "n/a",
        "0.512",
        "0.481 to 0.543", "inconclusive", "+0.42", "−0.10 to +1.01", "12/38", "0/400", "0/20", "internal.html",
    ]  # fmt: skip
    assert [word for word in words if word not in done.stdout] == []
    tables = [line for line in done.stdout.splitlines() if "internal.html" not in line]
    assert max(map(len, tables)) <= width
    assert len(result_tables(summary().rows, width)) == (2 if width == 80 else 1)
    assert json.loads(place.call("report", "--json").stdout) == read_json(place.workspace / SUMMARY)


def test_columns_of_facts_are_shown_where_facts_were_looked_for() -> None:
    with_facts, without = summary().rows, [replace(row, facts_carried=None) for row in summary().rows]
    for rows, shown in ((with_facts, True), (without, False)):
        for width in (80, 200):
            heads = [str(column.header) for table in result_tables(rows, width) for column in table.columns]
            assert ("facts\ncarried" in heads, "canaries\nleaked" in heads) == (shown, shown)
            assert "5-gram\nexcess" in heads


@pytest.mark.parametrize("verdict", ["inconclusive", "refuted"])
def test_a_refuted_claim_is_told_loudly(place: Place, verdict: str) -> None:
    body = summary().table({}, ()).to_json()
    for line in body["rows"][:2]:
        line["verdict"] = verdict
    write_json(place.workspace / "reports" / "summary.json", body)
    told = place.call("report").stdout
    assert told.count("An attack refuted the privacy claim of") == (verdict == "refuted")
    assert ("claim of dp3" in told) == (verdict == "refuted")  # a reference run claims nothing


def test_a_pipe_is_wide(place: Place) -> None:
    write_json(place.workspace / "reports" / "summary.json", summary().table({}, ()).to_json())
    done = run_python("from palimpsest.work.console import console; print(console().width)", place)
    assert done.stdout.split() == ["140"]


def run_python(code: str, place: Place) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in the workspace, with a pipe for standard output."""
    environment = {"PATH": "/usr/bin:/bin", LEDGER_VARIABLE: str(place.ledger), VARIABLE: os.environ[VARIABLE]}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=place.workspace, env=environment, capture_output=True, text=True, check=True)


def test_a_number_in_a_pipe_bears_its_heading_whatever_its_sign(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["select3", "-16%\n(-400 to 53%)", "\N{MINUS SIGN}6.11", "7", "∞", "–"]
    show(Console(force_terminal=False), Rows("", ("variant", "gain over\ntext", "a", "b", "c", "d"), [cells]))
    assert capsys.readouterr().out == "select3  gain over text -16% (-400 to 53%)  a \N{MINUS SIGN}6.11  b 7  c ∞\n"


@pytest.mark.parametrize("group", [(), ("ledger",), ("keys",)])
def test_the_list_of_commands_fits_on_a_screen_and_cuts_no_sentence(group: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*group, "--help"]).stdout
    assert "..." not in told.partition("Commands:")[2]
    assert len(told.splitlines()) <= 40


def test_words_for_arguments_have_one_pair_of_brackets() -> None:
    for command, usage in (("compare", "[VARIANT|WORKSPACE]..."), ("sweep", "KEY=a,b")):
        line = CliRunner().invoke(app, [command, "--help"]).stdout.splitlines()[0]
        assert usage in line
        assert "[[" not in line


@pytest.mark.parametrize("command", [("run",), ("sweep", "select3", "epsilon=1,2")])
def test_a_folder_without_a_workspace_stays_as_it_is(command: tuple[str, ...], tmp_path: Path) -> None:
    done = call(*command, "--workspace", tmp_path / "nowhere", ledger=tmp_path / "ledger.db")
    assert (done.exit_code, "There is no params.yaml here." in done.stderr) == (1, True)
    assert not (tmp_path / "nowhere").exists()


def test_what_is_asked_of_a_deployment_that_is_written_already_is_refused(place: Place) -> None:
    (place.workspace / "prefect.yaml").touch()
    code = "from palimpsest.cli.main import app; app(['deploy', '--write', '--image', 'registry.example.org/worker:2'])"
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run_python(code, place)
    assert "holds what was asked for when it was written" in refused.value.stderr


def test_heavy_packages_wait_until_they_are_needed(place: Place) -> None:
    write_json(place.workspace / "reports" / "summary.json", summary().table({}, ()).to_json())
    commands = ("--help", "plan", "status", "ledger", "report", "compare")
    code = (
        "import sys\nfrom palimpsest.cli.main import app\n"
        "heavy = {'torch', 'transformers', 'dvc', 'prefect', 'altair', 'sklearn', 'sentence_transformers', 'opendp'}\n"
        f"for command in {commands!r}:\n"
        "    app([command], standalone_mode=False)\n"
        "    print('loaded by', command, sorted(heavy & set(sys.modules)))"
    )
    told = [line for line in run_python(code, place).stdout.splitlines() if line.startswith("loaded by")]
    assert told == [f"loaded by {command} []" for command in commands]


def test_what_starts_stages_loads_nothing_that_trains(place: Place) -> None:
    names = [f"palimpsest.work.{name}" for name in ("run", "begin", "plan")] + ["palimpsest_lab.commands.reproduce"]
    code = "\n".join(["import sys", *(f"import {name}; {_TRAINING}" for name in names)])
    assert run_python(code, place).stdout == "set()\n" * len(names)


_TRAINING = "print({'torch', 'transformers', 'sklearn'} & set(sys.modules))"


def test_a_target_means_all_that_it_needs(place: Place) -> None:
    assert "dp_train@dp3" in find_upstream(place.workspace, ["pplm_generate@dp3"])
    assert "dp_train@dp3" not in find_upstream(place.workspace, ["pretrain"])
    everything = set(stage_names(place.workspace))
    for unresolved in ("dp_train", "models/dp3"):
        assert find_upstream(place.workspace, [unresolved]) == everything
    assert find_upstream(place.workspace, ["report"]) == everything - {"release"}


@pytest.mark.parametrize("target", ["pplm_generate@dp3", "mia@dp3", "dp_train", "report"])
def test_a_target_beyond_the_budget_is_refused_before_its_first_stage(place: Place, target: str) -> None:
    place.edit("privacy", "budget", epsilon=2.9)
    assert place.call("register", "--amend").exit_code == 0
    done = place.call("run", target)
    assert (done.exit_code, "Nothing was charged" in done.stderr) == (1, True)


def test_a_plan_shows_what_each_batch_of_private_contexts_may_write(place: Place, tmp_path: Path) -> None:
    done = init(place.home, tmp_path / "written", method="predict")
    assert done.exit_code == 0, done.output
    told = call("plan", "--workspace", tmp_path / "written", ledger=place.ledger)
    assert told.exit_code == 0, told.output
    words = " ".join(told.output.split())
    assert "predict3" in words
    assert "difference" in words
    assert "(zcdp)" in words
    assert "label_histogram" not in words  # a price list, not a list of queries


def test_an_option_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    # the last one would count, in silence, and a plan of half of what was asked for would be shown
    table = ("reproduce", "000", "table1", "--plan", "--cells")
    told = call(*table, "sst2/real", "--cells", "sst2/multitask3", ledger=tmp_path / "ledger.db")
    assert told.exit_code == 1
    assert "--cells is given twice" in told.stderr
    assert call(*table, "sst2/real", ledger=tmp_path / "ledger.db").exit_code == 0
