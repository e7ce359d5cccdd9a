"""Why there is no result: in words of this project, or by the type and the place of an error, and never by its text."""

from pathlib import Path

import pytest

from palimpsest.audit.inconclusive import Inconclusive, read_inconclusive
from palimpsest.audit.membership import bag_of_words_control
from palimpsest.errors import BackendError, DataError, ModelError, ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.report.results import Metric, Results

KIND = Metric[dict]("kind", dict, lambda _: ("v",))


def raised(error: Exception) -> Inconclusive:
    try:
        raise error
    except type(error) as told:
        return Inconclusive.of(told)


@pytest.mark.parametrize("kind", [DataError, ModelError])
def test_rows_that_are_not_enough_are_no_failure(kind):
    assert raised(kind("The subset is too small.", "Enlarge it.")) == Inconclusive(
        "the subset is too small", "Enlarge it.", failed=False
    )


@pytest.mark.parametrize("kind", [BackendError, ParamsError])
def test_what_is_no_matter_of_the_rows_is_a_failure(kind):
    assert raised(kind("The judge is away.", "Wait.")) == Inconclusive("the judge is away", "Wait.", failed=True)


def test_a_machine_that_is_full_is_a_failure():
    assert raised(MemoryError("private")).failed
    assert raised(OSError(28, "private")).inconclusive == "the disk is full"


def test_an_error_that_nobody_foresaw_is_told_by_its_type_and_place_alone():
    why = raised(KeyError("a private row"))
    assert why.failed
    assert why.inconclusive.startswith("the audit itself failed (KeyError at line ")
    assert why.inconclusive.endswith(" of test_inconclusive.py)")
    assert "private" not in why.lines


def test_the_place_is_a_line_of_this_project_and_not_of_a_library():
    with pytest.raises(TypeError) as told:  # from inside numpy
        bag_of_words_control(["a"] * 9, ["b"] * 9, seed="x")  # type: ignore[arg-type]
    assert Path(told.traceback[-1].path).name != "membership.py"
    assert "of membership.py)" in Inconclusive.of(told.value).inconclusive


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ((["a b"] * 9, []), "no member or no non-member"),
        ((["a b"], ["c d"]), "too small for its control"),
        ((["!"] * 9, ["?"] * 9), "hold no word"),
    ],
)
def test_rows_that_allow_no_control_are_refused_in_words(sides, words):
    with pytest.raises(DataError, match=words):
        bag_of_words_control(*sides, seed=0)


def test_a_file_without_a_result_is_read_as_none(tmp_path):
    why = Inconclusive("it is so", "Wait.", failed=False)
    write_json(tmp_path / "kind.json", why.document)
    body = read_json(tmp_path / "kind.json")
    assert body["zone"] == "internal"
    assert read_inconclusive(body) == why
    found = Results({"kind": {"v": body, "w": {"value": 1}}})
    assert found.of(KIND) == {"w": {"value": 1}}
    assert found.get(KIND, "v") is None
    assert found.find_unsettled(KIND) == {"v": why}
    assert read_inconclusive({"value": 1}) is None
