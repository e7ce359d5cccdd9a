"""From Python a decision is taken as it is meant, or its argument is named: no file of ours, and no bare TypeError."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import palimpsest
from palimpsest import api
from palimpsest.errors import ParamsError


def stored(table: Any, folder: Path) -> dict[str, list[object]]:
    """What becomes of a table that is given in place of a file."""
    with ExitStack() as drafts:
        now, later = api._place_table(table, folder, "public", "body", drafts)  # noqa: SLF001
        assert now != later
    return dict(pq.read_table(later).to_pydict())


def test_the_error_is_where_the_documentation_says() -> None:
    assert issubclass(ParamsError, palimpsest.PalimpsestError)
    assert issubclass(palimpsest.RunFailed, palimpsest.PalimpsestError)


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [("n_public", np.int64(600), 600), ("max_rows", np.uint8(3), 3), ("text", "body", "body"), ("label", None, None),
     ("label", ["kind", "stars"], ["kind", "stars"]), ("epsilon", np.float32(3), 3.0), ("max_length", None, None),
     ("delta", None, None), ("milestones", [1, 3], [1, 3]), ("labels", None, None), ("labels", {"a": "b"}, {"a": "b"})],
)  # fmt: skip
def test_a_decision_is_taken_as_it_is_meant(name: str, given: object, taken: object) -> None:
    assert api._take(name, given) == taken  # noqa: SLF001


@pytest.mark.parametrize(
    ("name", "given"),
    [("n_public", 600.5), ("n_public", "600"), ("label", 7), ("text", 7), ("asset", 3), ("epsilon", "3"),
     ("epsilon", None), ("budget", [1]), ("delta", "x"), ("milestones", 3), ("labels", 3), ("labels", "a,b"),
     ("labels", {"a", "b"}), ("json_schema", "schema.json")],
)  # fmt: skip
def test_a_decision_of_another_type_is_named(name: str, given: object) -> None:
    with pytest.raises(ParamsError, match=f"^{name} is a {type(given).__name__}"):
        api._take(name, given)  # noqa: SLF001


def test_a_schema_that_is_none_is_named() -> None:
    with pytest.raises(ParamsError, match=r"^json_schema needs `type: object` and `properties`"):
        api._take("json_schema", {"type": "object"})  # noqa: SLF001


@pytest.mark.parametrize("name", ["label", "text", "n_public", "labels", "epsilon"])
def test_a_column_in_place_of_its_name_is_not_quoted(name: str) -> None:
    with pytest.raises(ParamsError) as refused:
        api._take(name, pd.Series(["what Ann wrote"]))  # noqa: SLF001
    assert "Ann" not in str(refused.value)


@pytest.mark.parametrize("table", [["one", "two"], ("one", "two"), pd.Series(["one", "two"])])
def test_texts_alone_are_a_table_of_the_text_column(table: Any, tmp_path: Path) -> None:
    assert stored(table, tmp_path) == {"body": ["one", "two"]}


def test_a_column_of_truths_holds_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"body": ["one", "two"], "kept": [True, False]})
    assert stored(frame, tmp_path)["kept"] == ["True", "False"]


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"^public is a int"), ExitStack() as drafts:
        api._place_table(7, tmp_path, "public", "body", drafts)  # type: ignore[arg-type]  # noqa: SLF001


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ParamsError, match=r"^datasets is not installed"):
        api.Workspace(Path()).dataset("select3")
