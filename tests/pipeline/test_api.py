"""Python has the workspace, the ledger and the results of the commands."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from dp_accounting import GaussianDpEvent

import palimpsest as p
from palimpsest.api import RunFailed
from palimpsest.audit.ngrams import NgramAudit
from palimpsest.errors import DataError, PalimpsestError, ParamsError
from palimpsest.files import write_json
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.record import Record
from palimpsest.records.write import write_synthetic
from palimpsest.workspace import PRIVATE, RECEIPTS, SYNTHETIC
from tests.pipeline.place import VARIANT, Place
from tests.receipts import a_receipt

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]  # they share the workspace that has run


Tables = tuple[pandas.DataFrame, pandas.DataFrame]
LETTERS = {"text": "body", "label": "team", "labels": ["bills", "parcels"], "n_public": 30, "asset": "letters"}


@pytest.fixture(scope="module")
def tables() -> Tables:
    rows = [{"body": f"invoice {n} is wrong", "team": "bills"} for n in range(30)]
    return pandas.DataFrame(rows), pandas.DataFrame({"body": [f"parcel {n} came" for n in range(30)]})


@pytest.fixture(autouse=True)
def _ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's own, where it enters no workspace."""
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))


class Dataset:
    """What `datasets.Dataset` has of a table."""

    def __init__(self, frame: pandas.DataFrame) -> None:
        self._frame = frame

    def to_pandas(self) -> pandas.DataFrame:
        return self._frame


def test_a_table_becomes_a_workspace_that_the_commands_know(tables: Tables, tmp_path: Path) -> None:
    """From values, a DataFrame and a data set; nothing is spent, and the private table is its owner's alone."""
    private, public = tables
    work = p.create(tmp_path / "work", private, Dataset(public), **LETTERS, method="select")
    given = work.folder / "data" / "given" / "data.parquet"
    assert given.stat().st_mode & 0o077 == 0
    plan = work.plan()
    assert [line.stage for line in plan.summary.lines] == ["select@select3"]
    assert plan.summary.lines[0].cost.epsilon == pytest.approx(3.0, abs=0.01)
    assert "will run" in plan._repr_html_()
    assert work.budget().spent == 0
    assert p.open(work.folder) == work
    with pytest.raises(DataError, match="has no rows yet"):
        work.samples("select3")
    with pytest.raises(DataError, match="no report"):
        work.audit()


def test_a_table_is_never_written_over_another_workspace_s(tables: Tables, tmp_path: Path) -> None:
    private, public = tables
    work = p.create(tmp_path / "work", private, public, **LETTERS)
    before = (work.folder / "data" / "given" / "data.parquet").read_bytes()
    with pytest.raises(ParamsError, match="exists here"):
        p.create(tmp_path / "work", public.assign(team="bills"), public, **LETTERS)
    assert (work.folder / "data" / "given" / "data.parquet").read_bytes() == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_refused_leaves_no_table_and_no_other_one(tables: Tables, tmp_path: Path) -> None:
    """Git ignores a table from the first moment that it stays, and a table that is there stays with its settings."""
    private, public = tables
    for wrong in ({"text": "bodyy"}, {"public_test": private}):
        with pytest.raises(DataError):
            p.create(tmp_path / "work", private, public, **(LETTERS | wrong))
        assert contents(tmp_path / "work") == {}
    work = p.create(tmp_path / "work", private, public, **LETTERS)
    run, asked = Run("fit", "a", "release", "rows", "plan"), PlannedQuery("votes", GaussianDpEvent(20.0))
    Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}").reserve("letters", run, [asked])  # its size stays from then on
    before = contents(work.folder)
    for wrong in ({"text": "bodyy"}, {"n_public": 31}):
        with pytest.raises(PalimpsestError):
            p.create(work.folder, private.assign(body="another"), public, force=True, **(LETTERS | wrong))
        assert contents(work.folder) == before
    given = work.folder / "data" / "given"
    with pytest.raises(DataError, match="private rows"):  # where the new private table would come to lie
        p.create(work.folder, private.assign(body="another"), given / "data.parquet", force=True, **LETTERS)
    p.create(work.folder, private.assign(body="another"), public, force=True, **LETTERS)
    assert set(pandas.read_parquet(given / "data.parquet")["body"]) == {"another"}
    assert {path.name for path in given.iterdir()} == {"data.parquet", "public.parquet"}


def test_a_plan_is_refused_where_private_rows_are_named_as_public(tables: Tables, tmp_path: Path) -> None:
    work = p.create(tmp_path / "work", *tables, **LETTERS)
    settings = work.folder / "params.yaml"
    settings.write_text(settings.read_text().replace("given/public.parquet", "given/data.parquet"))
    with pytest.raises(DataError, match=r"dataset\.public in params\.yaml points at private rows"):
        work.plan()


def test_rows_are_of_a_variant_and_private_ones_need_a_word(tables: Tables, tmp_path: Path) -> None:
    """By the receipt, as the command has it."""
    work = p.create(tmp_path / "work", *tables, **LETTERS, method="select")
    for path in (SYNTHETIC / "select3", PRIVATE / "train"):
        write_synthetic([Record("bill", "bills")], work.folder / path, "body", "team")
    with pytest.raises(ParamsError, match=r"params\.yaml does not have"):
        work.samples("../private/train", reference=True)
    receipt = work.folder / RECEIPTS / "select3.json"
    write_json(receipt, a_receipt(variant="select3", purpose="reference").to_json())
    with pytest.raises(DataError, match="say reference=True"):
        work.samples("select3")
    assert work.samples("select3", reference=True).to_dict("records") == [{"body": "bill", "team": "bills"}]
    write_json(receipt, a_receipt(variant="select3").to_json())
    assert len(work.samples("select3")) == 1


def test_fields_are_declared_in_words_and_come_out_with_the_rows(tables: Tables, tmp_path: Path) -> None:
    private, public = tables
    told = private.assign(size=["small", "large"] * (len(private) // 2) + ["small"] * (len(private) % 2))
    with pytest.raises(ParamsError, match=r"fields\.size is a Series") as caught:
        p.create(tmp_path / "work", told, public, **LETTERS, fields={"size": told["size"]})
    assert "small" not in str(caught.value)
    fields = {"size": ["small", "large"], "age": "number(0..9, 1)"}
    work = p.create(tmp_path / "work", told.assign(age=3), public, **LETTERS, method="select", fields=fields)
    rows = [Record("bill", "bills", (("size", "large"), ("age", 3)))]
    write_synthetic(rows, work.folder / SYNTHETIC / "tabulate3", "body", "team")
    write_json(work.folder / RECEIPTS / "tabulate3.json", a_receipt(variant="tabulate3").to_json())
    assert work.samples("tabulate3").to_dict("records") == [
        {"body": "bill", "team": "bills", "size": "large", "age": 3}
    ]


def test_a_decision_is_a_known_one_and_a_file_is_named_by_a_path_or_a_text(tables: Tables, tmp_path: Path) -> None:
    tables[0].to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ParamsError, match="epsilom"):
        p.create(tmp_path / "work", *tables, **LETTERS, epsilom=1.0)
    with pytest.raises(ParamsError, match="asset, n_public: this is not decided"):
        p.create(tmp_path / "work", *tables, text="body")
    work = p.create(tmp_path / "work", *tables, **LETTERS, method="select", test=str(tmp_path / "test.csv"))
    assert read(work.folder).dataset.test == str(tmp_path / "test.csv")


def test_whole_numbers_beside_an_empty_cell_stay_whole_and_no_error_has_a_value(tmp_path: Path) -> None:
    public = pandas.DataFrame({"body": ["parcel came"] * 30})
    private = pandas.DataFrame({"body": ["bill"] * 30, "team": [1] * 29 + [None]})
    said = LETTERS | {"labels": ["0", "1"]}
    work = p.create(tmp_path / "work", private, public, **said, check=False)
    written = pandas.read_parquet(work.folder / "data" / "given" / "data.parquet")
    assert str(written["team"].dtype) == "Int64"
    with pytest.raises(DataError, match="mixed types") as told:
        p.create(tmp_path / "other", private.assign(team=[1, "a secret"] * 15), public, **said)
    assert "secret" not in str(told.value)
    assert told.value.__context__ is None


def test_columns_of_one_name_are_said_to_be(tables: Tables, tmp_path: Path) -> None:
    private, public = tables
    twice = pandas.concat([private, private[["body"]]], axis=1)
    with pytest.raises(DataError, match="'data' has two columns of one name"):
        p.create(tmp_path / "work", twice, public, text="body", n_public=30, asset="letters")


def test_python_sees_what_the_commands_made(ran: Place, entered: Callable[[Place], Place]) -> None:
    place = entered(ran)
    work = p.open(place.workspace)
    samples = work.samples(VARIANT)
    written = (place.workspace / "data" / "synthetic" / f"{VARIANT}.jsonl").read_text().splitlines()
    assert samples.to_dict("records") == [json.loads(line) for line in written]
    audit = work.audit()
    assert {row.variant for row in audit.rows} >= {VARIANT, "real", "public_only"}
    assert isinstance(audit.of(VARIANT)["ngrams"], NgramAudit)
    assert VARIANT in audit._repr_html_()
    assert VARIANT in str(audit)
    assert work.budget().spent == place.ledger.balance("tickets").spent > 0


def test_a_run_that_fails_is_an_error(ran: Place, entered: Callable[[Place], Place]) -> None:
    place = entered(ran)
    with pytest.raises(RunFailed, match="status"):
        p.open(place.workspace).run("no_such_stage")
