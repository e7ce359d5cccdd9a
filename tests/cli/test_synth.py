"""From a file to rows in one line: what `synth` asks and goes on with; `sample` and `compare` on what it made."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_place import Place, call
from click.testing import Result
from test_commands import charged, receipts, summary

from palimpsest.cli import look
from palimpsest.cli.begin import complete
from palimpsest.files import read_json, write_json
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.records.picked import pick_rows
from palimpsest.records.record import Record
from palimpsest.records.write import write_synthetic
from palimpsest.work import before, run
from palimpsest.work.begin import README
from palimpsest.workspace import CARD, DATA, GRAPH, LOCK, MODELS, PARAMS, PRIVATE, PUBLIC, RELEASE, SUMMARY, SYNTHETIC
from tests.pipeline.place import warm
from tests.settings_file import edit_settings

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(600)]  # whose stages start warm, as these do

CLEARS = "\x1b[2J"  # a screen
WORDS = {"bills": "invoice payment charge refund", "parcels": "parcel box courier delivery"}


class Home:
    """A folder with a small file, public text, a ledger, and the workspace that one line makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "work"
        words = [(label, listed.split()) for label, listed in WORDS.items()]
        rows = [f"the {listed[n % 4]} of order {n} is late,{label}" for n in range(60) for label, listed in words]
        public = [f"a {word} came on day {n}" for n in range(10) for _, listed in words for word in listed]
        (folder / "Own notes.csv").write_text("\n".join(["body,team", *rows, ""]))
        (folder / "public.csv").write_text("\n".join(["body", *public, ""]))

    def line(self, *more: object, epsilon: float = 3) -> Result:
        options = {
            "text": "body", "label": "team", "labels": ",".join(WORDS), "public": self.folder / "public.csv",
            "n-public": 120, "epsilon": epsilon, "dir": self.workspace,
        }  # fmt: skip
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        return call("synth", self.folder / "Own notes.csv", *given, *more, ledger=self.folder / "ledger.db")

    def call(self, *arguments: object) -> Result:
        return call(*arguments, "--workspace", self.workspace, ledger=self.folder / "ledger.db")

    @property
    def spent(self) -> float:
        return Ledger.open(f"sqlite:///{self.folder / 'ledger.db'}").balance("own_notes").spent


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Result]:
    """After the first line, which nobody could answer."""
    home = Home(tmp_path_factory.mktemp("synth"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run_workspace", lambda *_, **__: 0)
        return home, home.line()


@pytest.fixture(scope="module")
def ran(asked: tuple[Home, Result]) -> tuple[Home, Result]:
    """After the same line with the word; the audits that take longest are left out."""
    home, _ = asked
    edit_settings(home.workspace, "runs", audit=[])
    edit_settings(home.workspace, "utility", evaluators=["tfidf_lr"])
    edit_settings(home.workspace, "audit", resamples=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST")  # which the process that has the libraries does not know
        patch.setattr(run, "serve_stages", lambda _: nullcontext(warm()))
        return home, home.line("--yes")


def test_without_a_word_a_plan_is_shown_and_nothing_is_charged(asked: tuple[Home, Result]) -> None:
    home, done = asked
    assert done.exit_code == 1
    assert "select@select3" in done.stdout
    assert "of the budget of own_notes, and nobody can be asked" in done.stderr
    assert (home.workspace / "README.md").read_text() == README
    assert home.spent == 0


def test_a_no_charges_nothing(asked: tuple[Home, Result], monkeypatch: pytest.MonkeyPatch) -> None:
    home, questions = asked[0], list[str]()

    def no(question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr(before, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(before, "confirm", no)
    monkeypatch.setattr(run, "run_workspace", lambda *_, **__: pytest.fail("it ran"))
    done = home.line()
    assert (done.exit_code, home.spent) == (1, 0)
    assert "This run charges epsilon" in questions[0]
    assert "Nothing ran and nothing was charged." in done.stdout


def test_one_line_leads_from_a_file_to_rows(ran: tuple[Home, Result]) -> None:
    home, done = ran
    assert done.exit_code == 0, done.output
    assert 3 < home.spent < 10
    made = [json.loads(line) for line in (home.workspace / SYNTHETIC / "select3.jsonl").read_text().splitlines()]
    shown = rows_of(done.stdout)
    assert {label: len(texts) for label, texts in shown.items()} == dict.fromkeys(WORDS, 3)
    assert {(text, label) for label in shown for text in shown[label]} <= {(row["body"], row["team"]) for row in made}
    (sentence,) = read_json(home.workspace / SUMMARY)["conclusions"].values()
    assert f"select3: {sentence}" in done.stdout


def test_the_same_line_again_shows_the_rows_and_charges_nothing(ran: tuple[Home, Result]) -> None:
    home, before = ran[0], ran[0].spent
    done = home.line()
    assert (done.exit_code, home.spent) == (0, before)
    assert "nothing was charged" in done.stdout
    assert rows_of(done.stdout).keys() == WORDS.keys()


def test_the_same_rows_in_another_order_are_not_asked_about_and_other_rows_are(
    ran: tuple[Home, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could answer here."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setattr(run, "serve_stages", lambda _: nullcontext(warm()))
    home, before = ran[0], ran[0].spent
    file = home.folder / "Own notes.csv"
    head, *rows = file.read_text().splitlines()
    file.write_text("\n".join([head, *rows[::-1], ""]))
    done = home.line()
    assert (done.exit_code, home.spent) == (0, before), done.output
    assert "to see whether its rows were charged before" in done.stdout
    half = len(rows) // 2  # of one row alone, a key decides whether it is among those that are trained on
    file.write_text("\n".join([head, *rows[half:], ""]))
    done = home.line()
    assert (done.exit_code, home.spent) == (1, before), done.output
    assert "would charge epsilon" in done.stderr
    file.write_text("\n".join([head, *rows, ""]))


def test_another_line_for_the_same_folder_is_refused(ran: tuple[Home, Result]) -> None:
    done = ran[0].line("--max-length", 50, epsilon=1)
    assert done.exit_code == 1
    assert "this line says otherwise: dataset.max_length, variants" in done.stderr


def test_what_was_made_is_sampled_and_compared(ran: tuple[Home, Result]) -> None:
    home, _ = ran
    done = [home.call("sample", "--label", "bills", "--rows", 5, "--seed", 1, "--json").stdout for _ in range(2)]
    assert [row["label"] for row in json.loads(done[0])] == ["bills"] * 5
    assert done[0] == done[1]
    lines = {line.split()[0]: line for line in home.call("compare").stdout.splitlines()}
    assert {"select3", "real", "public_only"} <= lines.keys()


def rows_of(shown: str) -> dict[str, list[str]]:
    """Label -> texts, of what was shown last."""
    found: dict[str, list[str]] = {}
    for line in shown.rpartition("Some rows of")[2].splitlines()[1:]:
        if line.startswith("  "):
            found[list(found)[-1]].append(line.strip())
        elif line.endswith(":"):
            found[line.removesuffix(":")] = []
    return found


@pytest.fixture
def sampled(place: Place) -> Place:
    """A workspace with the receipt of `dp3` and rows under it."""
    charged(place)
    records = [Record(f"text {n}{CLEARS}", "ab"[n % 2]) for n in range(10)]
    write_synthetic(records, place.workspace / SYNTHETIC / "dp3", "body", "team")
    return place


def test_rows_steer_no_terminal(sampled: Place) -> None:
    done = sampled.call("sample", "--rows", "9")
    assert (done.exit_code, "\x1b" in done.stdout) == (0, False)
    assert done.stdout.splitlines() == ["a:", *(f"  text {n} [2J" for n in range(0, 10, 2)), "b:"] + [
        f"  text {n} [2J" for n in range(1, 10, 2)
    ]


def test_a_row_is_shown_with_its_fields(sampled: Place) -> None:
    fields = (("priority", f"high{CLEARS}"), ("age", None), ("stars", 4))
    declared = {"priority": [f"high{CLEARS}", "low"], "age": "number(0..90, 10)", "stars": "number(0..5, 1)"}
    sampled.edit("dataset", fields=declared)
    write_synthetic([Record("text", "a", fields)], sampled.workspace / SYNTHETIC / "dp3", "body", "team")
    assert sampled.call("sample").stdout.splitlines() == ["a:", "  text", "    priority: high [2J, stars: 4"]
    row = {"text": "text", "label": "a", "fields": dict(fields)}
    assert json.loads(sampled.call("sample", "--json").stdout) == [row]


CHANGES: Mapping[str, dict[str, Any]] = {
    "a reference": {"purpose": "reference"},
    "no noise": {"epsilon": None},
    "fixed noise": {"noise_fixed": True},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rows_that_are_not_private_are_shown_on_the_owners_terminal_alone(
    sampled: Place, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the receipt: params.yaml, which a person edits, still says release."""
    path = receipts(sampled)[0]
    write_json(path, read_json(path) | change)
    for flags, said in (([], "--reference shows them"), (["--reference", "--json"], "no terminal")):
        done = sampled.call("sample", "dp3", *flags)
        assert (done.exit_code, said in done.stderr, "text" in done.stdout) == (1, True, False)
    monkeypatch.setattr(look, "on_a_terminal", lambda: True)
    assert "text 1" in sampled.call("sample", "dp3", "--reference", "--rows", "9").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["dp4"], "VARIANT is 'dp4'"), (["dp3", "--label", "c"], "--label is 'c': no row of dp3 has it")],
)
def test_what_there_is_not_is_named(sampled: Place, arguments: list[str], said: str) -> None:
    done = sampled.call("sample", *arguments)
    assert (done.exit_code, said in done.stderr) == (1, True)


def test_where_there_are_no_rows_it_is_said(place: Place) -> None:
    assert "VARIANT is missing; none has rows yet" in place.call("sample").stderr
    assert "dp3 has no rows yet" in place.call("sample", "dp3").stderr


def test_one_missing_receipt_hides_its_own_rows_alone(sampled: Place) -> None:
    sampled.edit("variants", other={"method": "dp_lm", "from": "dp3", "variant": "plain"})
    write_synthetic([Record("other", "a")], sampled.workspace / SYNTHETIC / "other", "body", "team")
    assert "text 1" in sampled.call("sample", "--rows", "9").stdout
    said = sampled.call("sample", "other").stderr
    assert "The receipt 'other.json' is missing" in said
    assert "by hand" not in said


def test_as_many_rows_of_each_label_as_there_are() -> None:
    records = [Record(str(n), "common" if n else "rare") for n in range(50)]
    found = pick_rows(records, 3, by_label=True, seed=2)
    assert [record.label for record in found] == ["rare", "common", "common", "common"]
    assert len({record.text for record in found}) == 4
    assert len(pick_rows(records, 3, by_label=False, seed=None)) == 3


def test_the_comparison_has_the_values_of_the_page(place: Place) -> None:
    body = summary().table({"dp3": "Better."}, ["fidelity (dp3)"]).to_json()
    write_json(place.workspace / SUMMARY, body)
    told = json.loads(place.call("compare", "dp3", "inf", "--json").stdout)
    dp3, inf = told["variants"]
    first = body["rows"][0]
    assert (dp3["epsilon"], dp3["utility"], dp3["gain"]) == (
        first["epsilon_proved"], first["scores"][0]["accuracy"], first["scores"][0]["gap_closed"],
    )  # fmt: skip
    assert dp3["attacks"].keys() == {"membership", "text_membership"}
    assert (dp3["conclusion"], inf["conclusion"], told["coming"]) == ("Better.", None, ["fidelity (dp3)"])
    shown = " ".join(place.call("compare").stdout.split())
    words = [
        "dp3",
        "epsilon 2.998",
        "3 a word",
        "80.0% (78.0 to 82.0%)",
        "51% (42 to 63%)",
        "inconclusive AUC 0.512",
        "Still to come",
    ]
    assert [word for word in words if word not in shown] == []
    assert "VARIANT is 'dp4', which was not measured" in place.call("compare", "dp4").stderr


def test_the_comparison_leaves_out_attacks_whose_control_failed(place: Place) -> None:
    body = summary().table({}, ()).to_json()
    body["rows"][0]["audits"]["membership"] |= {"control_passed": False, "epsilon_lower": 1.5}
    write_json(place.workspace / SUMMARY, body)
    assert "inconclusive AUC 0.507" in place.call("compare", "dp3").stdout
    body["rows"][0]["audits"]["text_membership"]["control_passed"] = False
    write_json(place.workspace / SUMMARY, body)
    shown = place.call("compare", "dp3").stdout
    assert ("inconclusive" in shown, "AUC" in shown) == (True, False)


@pytest.mark.parametrize(
    ("file", "asset"),
    [
        ("Own notes.csv.gz", "own_notes"),
        ("2024.csv", "data_2024"),
        ("Réunion é.tsv", "reunion_e"),
        ("患者.csv", "data_e48762d9"),
        ("患者2.csv", "data_2_e53e531f"),
    ],
)
def test_an_asset_is_named_after_its_file(file: str, asset: str) -> None:
    given = {"data": Path("folder.d") / file, "text": "body", "public": Path("p"), "n_public": 30, "asset": None}
    assert complete(given, {}, "init")["asset"] == asset


def test_the_page_of_a_workspace_names_all_that_lies_in_it() -> None:
    named = (CARD, DATA, GRAPH, LOCK, MODELS, PARAMS, PRIVATE, PUBLIC, RELEASE, SYNTHETIC)
    assert [path for path in named if f"`{path}" not in README] == []
