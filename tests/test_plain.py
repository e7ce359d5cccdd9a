"""Is a value written as its class says, and read back as it was?"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pytest

from palimpsest.plain import At, Plain, PlainFile


class Ends(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Score(Plain):
    keys: ClassVar = ("value", "passed", "steps")
    value: float
    steps: tuple[int, ...]
    noted: str = "nothing"

    @property
    def passed(self) -> bool:
        return self.value > 0.5


@dataclass(frozen=True)
class Audit(PlainFile):
    keys: ClassVar = ("best", "ends", "p", "orders", "control", "rows")
    rows: Annotated[int, At("size")]
    best: Annotated[Score, At(value="accuracy")]
    ends: Annotated[Ends, At(low="null_low", high="null_high")]
    orders: Mapping[int, Score]
    p: Annotated[float, At("excess", "p")]
    control: Score | None


AUDIT = Audit(7, Score(0.75, (1, 2)), Ends(0.25, 0.5), {3: Score(0.5, ())}, 0.125, None)
DOCUMENT: dict[str, Any] = {
    "variant": "dp3",
    "zone": "internal",
    "accuracy": 0.75,
    "passed": True,
    "steps": [1, 2],
    "null_low": 0.25,
    "null_high": 0.5,
    "excess": {"p": 0.125},
    "orders": {"3": {"value": 0.5, "passed": False, "steps": []}},
    "control": None,
    "size": 7,
}


def test_the_file_is_in_the_order_of_the_keys() -> None:
    assert json.dumps(AUDIT.to_json("dp3")) == json.dumps(DOCUMENT)
    assert AUDIT.to_json("dp3", "dp")["zone"] == "dp"


def test_what_is_read_is_what_was_written() -> None:
    assert Audit.from_json(json.loads(json.dumps(DOCUMENT)) | {"more": 1}) == AUDIT


@pytest.mark.parametrize("name", [name for name in DOCUMENT if name not in ("variant", "zone", "passed")])
def test_a_missing_field_is_told(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        Audit.from_json({key: value for key, value in DOCUMENT.items() if key != name})


def test_numbers_in_an_array_are_read_as_floats() -> None:
    @dataclass(frozen=True, eq=False)
    class Curve(Plain):
        points: np.ndarray

    body = Curve(np.array([[0.0, 0.5], [1.0, 1.0]])).to_json()
    assert body == {"points": [[0.0, 0.5], [1.0, 1.0]]}
    assert Curve.from_json({"points": [[0, 1]]}).points.dtype == np.float64
