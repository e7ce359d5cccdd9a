"""A run is what it read: other rows are another run, the same rows the same one, whichever settings chose them."""

import ast
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import SelfComposedDpEvent

import stages.preprocess
from palimpsest.errors import DataError, LedgerError, ParamsError
from palimpsest.files import read_json
from palimpsest.graph.stages import SPENDERS, STAGES
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.steer.declaration import SteerSettings
from palimpsest.params.load import LEDGER_VARIABLE, load
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.private import SplitRow
from palimpsest.records.write import read_split, write_split
from palimpsest.training.team import Team
from palimpsest.workspace import FAULT, PRIVATE
from stages import dp_train
from stages.dp_train import Fitting
from stages.spenders import spender, spenders
from stages.spending import identify, open_charged, private_rows
from tests.settings_file import demo, write_settings

ROOT = Path(__file__).parents[1]
LABELS = ("returns", "workshop", "helpline", "accounts", "logistics")
HISTOGRAM = LabelHistogram(labels=LABELS, sigma=40.0)
PLAN = Plan("any", Budget(1.0, 1e-5), (PlannedQuery(HISTOGRAM.name, HISTOGRAM.event()),))
STEPS = 12

Edit = Mapping[str, Any]


def rows(count: int) -> list[dict[str, str]]:
    """Rows of two texts and two labels each, three of a person."""
    return [
        {
            "text": f"ticket {number} about a lamp", "other": f"note {number}", "person": str(number // 3),
            "label": LABELS[number % 5], "second": LABELS[number % 3],
        }
        for number in range(count)
    ]  # fmt: skip


def every_spender(content: Any) -> None:
    """Let all stages that spend have something to do."""
    variants, run, free = content["variants"], content["run"], {"purpose": "release", "epsilon": 4.0}
    votes = {"neighbours": 10, "threshold": 0.0, "selection": "rank"}
    variants["voted"] = free | {"method": "vote_select", "vote_select": {"keep": 0.2, "votes": votes, "batch": 1}}
    deep = {"rows": 10, "label_counts": "noisy", "prior": None, "histogram_share": 0.01, "batch": 1, "directions": 4}
    variants["deep"] = free | {"method": "sentdp", "sentdp": deep}
    words = {"token_epsilon": 1.0, "neighbours": 2, "vocabulary": 9}
    variants["words"] = {"method": "custext", "purpose": "reference", "epsilon": float("inf"), "custext": words}
    moved = {"rows": 10, "strengths": [1.0], "label_counts": "noisy"}
    variants["moved"] = free | {"method": "steer", "steer": SteerSettings.model_validate(moved).model_dump(mode="json")}
    told = {"values": {"lamp": ["lamps"]}, "pattern": None}
    restate = {
        "attributes": {"thing": told}, "statements": 2, "most_values": 9, "phrases_share": 0.1, "delta_share": 0.1,
        "label_share": 0.2, "false_cells": 1.0,
    }  # fmt: skip
    variants["told"] = free | {"method": "restate", "restate": restate}
    prompt = {"about": "{phrases}", "plain": "{label}", "ends": "eos"}
    shown = {
        "rows": 10, "label_counts": "noisy", "prior": None, "histogram_share": 0.01, "most": 8, "common": 0.1,
        "delta_share": 0.1, "shown": 3, "prompt": prompt, "temperature": 1.0, "top_p": 0.9, "max_tokens": 9,
        "side_by_side": 4, "filters": variants["predict3"]["predict"]["filters"],
    }  # fmt: skip
    variants["about"] = free | {"method": "phrases", "phrases": shown}
    variants["table"] = free | {"method": "tabulate", "tabulate": {"tables_share": 0.5, "batch": 1}}
    variants["best"] = free | {"method": "choose", "epsilon": 9.0, "choose": {"ngrams": 1}}
    run |= {"vote_select": {"voted": "select3"}, "sentdp": ["deep"], "steer": ["moved"], "custext": ["words"]}
    run |= {"restate": {"told": "select3"}, "tabulate": {"table": "select3"}, "phrases": ["about"]}
    run |= {"choose": {"best": ["select3", "voted"]}}
    run["evaluate"] += ["voted", "deep", "words", "moved", "told", "table", "about", "best"]


class Place:
    """A workspace whose private file was split."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.content = demo()
        every_spender(self.content)
        self.content["world"] = None  # its files are no others than the invented ones
        self.content["dataset"] |= {"private": "rows.jsonl", "test": None, "test_share": 0.2, "public": "public.jsonl"}
        self.write("rows", rows(60))
        self.write("more", rows(100))  # any one of them might miss the training part
        self.write("turned", rows(60)[::-1])
        self.write("test", rows(10))
        self.write("public", rows(11))  # not the test file's, which is private
        self.register("first")

    def write(self, name: str, found: list[dict[str, str]]) -> None:
        (self.home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))

    def register(self, name: str) -> None:
        """A new ledger with the asset, whose key is its own."""
        self.content["privacy"]["ledger"] = str(self.home.parent / f"{name}.db")
        self.ledger = Ledger.create(f"sqlite:///{self.home.parent / name}.db")
        column = self.content["dataset"]["unit"]["column"]
        unit = "record" if column is None else "person"
        self.ledger.register(Asset("demo", 1e-6, 10.0, 10_000, unit, unit_column=column))

    def split(self, edit: Edit | None = None) -> dict[str, str]:
        """Change settings and split the file: stage@name -> run key of everything that spends."""
        for section, values in (edit or {}).items():
            self.content[section] = {**self.content[section], **values} if isinstance(values, dict) else values
        write_settings(self.home, self.content)
        stages.preprocess.run()
        params = load()
        found = spenders(params)
        return {f"{each.method.stage}@{each.name}": identify(params, each, PLAN).key for each in found}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    home = tmp_path / "workspace"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    return Place(home)


OTHER_ROWS: dict[str, Edit] = {
    "another file": {"dataset": {"private": "more.jsonl"}},
    "another text": {"dataset": {"text": "other"}},
    "another label": {"dataset": {"label": "second"}},
    "shorter texts": {"dataset": {"max_length": 8}},
    "a larger test part": {"dataset": {"test_share": 0.5}},
    "a test file, and no test part": {"dataset": {"test": "test.jsonl"}},
    "a larger audit subset, and holdout": {"audit": {"size": 9000}},
}
SAME_ROWS: dict[str, Edit] = {
    "the file in another order": {"dataset": {"private": "turned.jsonl"}},
    "what the audit measures": {"audit": {"orders": [3], "resamples": 100, "guesses": 0.5, "alpha": 0.1}},
    "who is guessed about": {"audit": {"similarity": 0.1}},
    "how states are examined": {"audit": {"separation": {"rows": 20, "max_tokens": 8, "trees": 10, "projections": []}}},
    "how utility is measured": {"utility": {"evaluators": ["tfidf_lr"], "seeds": 4}},
    "the release": {"release": {"variants": ["dp3"], "title": "Another", "license": "MIT"}},
    "the row at epsilon 0": {"public_only": {"rows": 9}},
    "what is examined and shown": {"run": {"embedding_audit": [], "audit": []}},
    "the public test": {"dataset": {"public_test": None}},
    "what becomes of rows of nobody, where there are none": {"dataset": {"unit": {"missing": "refuse"}}},
    "the version": {"version": "9.9.9"},
    "where and how precisely torch computes": {"compute": {"device": "cpu", "precision": "bf16"}},
}


def test_all_stages_that_spend_are_looked_at(place: Place):
    assert {name.partition("@")[0] for name in place.split()} == set(SPENDERS)


@pytest.mark.parametrize("edit", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_a_setting_that_changes_the_rows_makes_another_run(place: Place, edit: Edit):
    before, read = place.split(), read_split(PRIVATE / "train.parquet")
    after = place.split(edit)
    assert sorted(map(_seen, read)) != sorted(map(_seen, read_split(PRIVATE / "train.parquet")))
    assert not set(before.values()) & set(after.values())


def persons(**changes: Any) -> Edit:
    """The file's rows are of persons; what else is said of them."""
    unit = {"column": "person", "max_rows": 3, "persons": 10_000, "missing": "drop"}
    return {"dataset": {"unit": unit | changes}}


def test_the_cap_and_the_unit_make_other_runs(place: Place):
    records = place.split()
    place.content["dataset"] |= persons()["dataset"]
    place.register("second")
    three, two = place.split(), place.split(persons(max_rows=2))
    assert len({*records.values(), *three.values(), *two.values()}) == 3 * len(records)
    assert all(row.person for row in read_split(PRIVATE / "train.parquet"))


def test_persons_and_rows_that_occur_twice_are_the_same_rows_in_any_order(place: Place):
    """Also where a person has more rows than are kept, and equal ones among them."""
    place.content["dataset"] |= persons(max_rows=2)["dataset"]
    place.register("second")
    found = [*rows(60), *rows(9), *rows(4)]
    place.write("twice", found)
    place.write("shuffled", random.Random(2).sample(found, len(found)))
    assert place.split({"dataset": {"private": "twice.jsonl"}}) == place.split(
        {"dataset": {"private": "shuffled.jsonl"}}
    )


def test_rows_that_name_nobody_are_left_out_or_refused_as_the_owner_chose(place: Place):
    place.content["dataset"] |= persons()["dataset"]
    place.register("second")
    whole = place.split()
    place.write("some", [*rows(60), *({**row, "person": " "} for row in rows(9))])
    assert place.split({"dataset": {"private": "some.jsonl"}}) == whole
    with pytest.raises(DataError, match="A private record cannot be read"):
        place.split(persons(missing="refuse"))
    (told,) = read_json(FAULT)["told"]
    assert told.startswith("'some.jsonl', row 61: column 'person' is empty")


@pytest.mark.parametrize("column", [None, "label"])
def test_the_private_file_of_an_asset_for_another_unit_is_not_read(place: Place, column: str | None):
    """What was charged for records holds for no person, and for persons of one column for those of no other."""
    place.content["dataset"] |= persons()["dataset"] if column else {}
    place.register("second")
    (place.home / "rows.jsonl").unlink()
    with pytest.raises(LedgerError, match="as the unit of privacy") as caught:
        place.split(persons(column=column) if column else persons())
    assert "closed to another unit" in caught.value.remedy


def _seen(row: SplitRow) -> tuple[str, str | None]:
    return row.text, row.label


def test_another_key_of_the_asset_makes_another_run(place: Place):
    before = place.split()
    place.register("second")
    assert not set(before.values()) & set(place.split().values())


def test_a_setting_that_changes_no_row_changes_no_run(place: Place):
    before = place.split()
    assert [name for name, edit in SAME_ROWS.items() if place.split(edit) != before] == []  # each beside those before


@pytest.mark.parametrize("edit", SAME_ROWS.values(), ids=SAME_ROWS)
def test_dvc_starts_no_charged_stage_for_a_setting_that_changes_no_row(edit: Edit):
    """It would be the same run, which is charged again."""
    changed = {f"{section}.{key}" for section, own in edit.items() if isinstance(own, dict) for key in own}
    asked = {param for stage in STAGES if stage.name in SPENDERS for param in stage.params}
    assert not [key for key in changed for param in asked if f"{key}.".startswith(f"{param}.")]


@pytest.mark.parametrize(
    "edit", [{"dataset": {"labels": dict.fromkeys(LABELS, "words")}}, {"dataset": {"n_public": 11_000}}]
)
def test_what_a_generator_is_told_of_the_data_makes_another_run(place: Place, edit: Edit):
    assert not set(place.split().values()) & set(place.split(edit).values())


def test_a_raised_version_makes_another_run(place: Place):
    place.split()
    params, who = load(), spender(load(), "select3")
    means = PlannedQuery("class_means", HISTOGRAM.event(), versions=versions_of("class_means"))
    raised = replace(means, versions=tuple((name, number + 1) for name, number in means.versions))
    keys = {identify(params, who, replace(PLAN, queries=(query,))).key for query in (means, means, raised)}
    assert len(keys) == 2


def test_a_setting_that_is_new_and_left_at_its_default_makes_no_other_run(place: Place):
    """As a release that adds one does, to whoever does not name it."""
    place.split()
    params = load()
    own = params.variants["select3"]

    class Newer(type(own.settings)):  # type: ignore[misc]
        new: int = 3

    def key(**new: int) -> str:
        settings = Newer(**own.settings.model_dump(), **new)
        other = {**params.variants, "select3": own.model_copy(update={"settings": settings})}
        made = params.model_copy(update={"variants": other})
        return identify(made, spender(made, "select3"), PLAN).key

    before = identify(params, spender(params, "select3"), PLAN).key
    assert (key() == before, key(new=3) == before, key(new=4) == before) == (True, True, False)


def test_no_code_is_part_of_a_run(place: Place, monkeypatch: pytest.MonkeyPatch):
    before = place.split()
    monkeypatch.setattr("palimpsest.graph.closure.digest", lambda *_: "other code")
    monkeypatch.setattr("palimpsest.__version__", "9.9.9")
    assert place.split() == before


def test_every_run_is_identified_in_one_place():
    """No stage makes a run's key by itself, and each that spends makes it."""
    made, asked = set(), set()
    for path in sorted((ROOT / "stages").glob("*.py")):
        called = {getattr(node.func, "id", "") for node in ast.walk(ast.parse(path.read_text())) if _is_call(node)}
        made |= {path.stem} if "Run" in called else set()
        asked |= {path.stem} if "identify" in called else set()
    assert (made, asked) == ({"spenders"}, {"fit", "dp_train"})


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


# Other rows than those that the plan was reserved for.


def swapped() -> list[SplitRow]:
    """Let another row lie where `preprocess` wrote one."""
    found = read_split(PRIVATE / "train.parquet")
    changed = [SplitRow("a row that nobody split", found[0].label), *found[1:]]
    write_split(PRIVATE / "train.parquet", changed)
    return changed


@pytest.mark.parametrize("change", [swapped, lambda: write_split(PRIVATE / "train.parquet", [])])
def test_rows_that_were_swapped_are_refused_before_anything_begins(place: Place, change: Callable[[], Any]):
    place.split()
    params = load()
    identity = identify(params, spender(params, "select3"), PLAN)
    change()
    opened = open_charged(params, place.ledger, identity, PLAN)
    with pytest.raises(LedgerError, match="not those that the plan was reserved for") as told, opened as session:
        session.view.ask(HISTOGRAM)
    assert "preprocess" in told.value.remedy
    assert [charge.state for charge in place.ledger.charges("demo")] == ["refunded"]
    assert place.ledger.balance("demo").spent == 0.0


def test_a_device_that_is_not_there_is_told_before_anything_is_reserved(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.split()
    monkeypatch.setenv("PALIMPSEST_DEVICE", "cuda:77")
    params = load()
    opened = open_charged(params, place.ledger, identify(params, spender(params, "select3"), PLAN), PLAN)
    with pytest.raises(ParamsError, match="no such device"), opened:
        pass
    assert place.ledger.charges("demo") == []


def test_the_rows_of_the_split_are_read(place: Place):
    place.split()
    params = load()
    with open_charged(params, place.ledger, identify(params, spender(params, "select3"), PLAN), PLAN) as session:
        session.view.ask(HISTOGRAM)
    assert [charge.state for charge in place.ledger.charges("demo")] == ["committed"]


@dataclass(frozen=True)
class Following(Team):
    """A process that another one leads, which has sent the asset's key and what they must have in common."""

    shared: tuple[str, ...] = ()

    def share(self, value: Any) -> Any:
        return Ledger.open(f"sqlite:///{Path.cwd().parent / 'first.db'}").asset("demo").key, self.shared

    def meet(self) -> None:
        Path("met").touch()


def led_by(leading: Fitting, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def joined() -> Iterator[Team]:
        yield Following(rank=1, size=2, shared=leading.shared)

    monkeypatch.setattr(dp_train, "join_team", joined)


@pytest.mark.parametrize(
    "edit", [{"dataset": {"test_share": 0.9}}, {"seed": 77}, {"code": "other"}, {"provenance": "other"}]
)
def test_a_process_that_is_at_another_run_than_its_leader_does_not_take_part(
    place: Place, monkeypatch: pytest.MonkeyPatch, edit: Edit
):
    """A second machine's own split, settings, version of palimpsest, or model."""
    place.split()
    asked: list[Any] = []
    leading = Fitting(identify(load(), spender(load(), "dp3"), PLAN), PLAN, asked.append)
    led_by(replace(leading, **edit) if "code" in edit or "provenance" in edit else leading, monkeypatch)
    place.split({} if "code" in edit or "provenance" in edit else edit)
    own = replace(leading, run=identify(load(), spender(load(), "dp3"), PLAN))
    with pytest.raises(LedgerError, match="at another run than the one that leads it"):
        dp_train.fit(load(), own)
    assert (asked, Path("met").exists()) == ([], False)


@pytest.mark.parametrize("change", [None, swapped])
def test_a_process_that_follows_has_the_same_rows_or_does_not_take_part(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any] | None
):
    place.split()
    params = load()
    identity = identify(params, spender(params, "dp3"), PLAN)

    asked: list[Any] = []
    own = Fitting(identity, PLAN, asked.append)
    led_by(own, monkeypatch)
    if change is None:
        dp_train.fit(params, own)
    else:
        change()
        with pytest.raises(LedgerError, match="not those that the plan was reserved for"):
            dp_train.fit(params, own)
    assert (len(asked), Path("met").exists()) == ((1, True) if change is None else (0, False))


# A training that was stopped.


def always(_charge: Charge) -> bool:
    return True


@pytest.mark.parametrize("edit", [{"dataset": {"test_share": 0.9}}, {"audit": {"size": 10_000}}])
def test_a_training_begun_on_some_rows_does_not_go_on_with_others(place: Place, edit: Edit):
    wanted = [PlannedQuery("train", SelfComposedDpEvent(HISTOGRAM.event(), STEPS), steps=STEPS)]
    place.split()
    begun = identify(load(), spender(load(), "dp3"), PLAN)
    first = place.ledger.reserve("demo", begun, wanted).charges[0]
    place.ledger.begin(first)
    place.ledger.advance(first, 0, 5)
    many = len(private_rows())
    place.split(edit)
    assert len(private_rows()) < many
    other = identify(load(), spender(load(), "dp3"), PLAN)
    again = place.ledger.reserve("demo", other, wanted, always)
    assert (again.resumed, again.charges[0].id == first.id) == (0, False)
    assert place.ledger.reserve("demo", begun, wanted, always).resumed == 5  # the same rows: it goes on
