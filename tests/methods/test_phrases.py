"""`phrases`: a public model writes about phrases that many private rows have, and reads none of the rows."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest
from pydantic import ValidationError

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.phrases.declaration import PhrasesSettings
from palimpsest.methods.phrases.declaration import plan as planned
from palimpsest.methods.phrases.fit import Phrases, Told, Voice, draw_phrases, weigh_phrases
from palimpsest.methods.shared.base import Budget, Made, Plan, coins
from palimpsest.methods.shared.postprocess import PersonalData
from palimpsest.methods.shared.settings import DELTA_SHARE
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.phrases import PublicWords
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.twins.attacks import save_base
from tests.methods.tickets import SECRET, ledger_of_tickets, opened_by, tickets

DELTA = 1e-3
LABELS = {"refund": "Money back.", "praise": "Kind words."}
WORDS = ("refund", "praise", "lamp", "oven", "leaks", "hums", "fine", "about", "note", "well")
PUBLIC = PublicWords.of(["the lamp", "the oven leaks", "the", "the note"], 0.5)
ROWS = [
    PrivateRow(f"the {thing} {does} {SECRET}", label)
    for thing, does, label in (("lamp", "hums", "refund"), ("lamp", "leaks", "refund"), ("oven", "hums", "praise"))
    for _ in range(60)
]


def settings_of(**changes: Any) -> PhrasesSettings:
    body = {"rows": 12, "most": 3, "shown": 2, "max_tokens": 5, "side_by_side": 8, "filters": {"chain": []}}
    return PhrasesSettings.model_validate(body | changes)


def schema_of(labels: dict[str, str] | None = None, n_public: int = 180) -> PublicSchema:
    return tickets(n_public, LABELS if labels is None else labels)


def plan_of(target: float, schema: PublicSchema | None = None, **changes: Any) -> Plan:
    return planned(settings_of(**changes), schema or schema_of(), Budget(target, DELTA))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with random weights that knows these words."""
    folder = tmp_path_factory.mktemp("base")
    save_base(WORDS, 1.0, 1, folder)
    return folder


def fit_of(base: Path, plan: Plan, schema: PublicSchema | None = None, **changes: Any) -> Phrases:
    settings, public = settings_of(**changes), schema or schema_of()
    return Phrases(settings, public, plan, PUBLIC, Voice(settings, base, public.labels, 7), PersonalData)


def asked(
    folder: Path, base: Path, target: float, private: Sequence[PrivateRow] = ROWS, **changes: Any
) -> tuple[Phrases, Told, list[tuple[str, float, str]]]:
    """The fit, what it was told, and what it was charged."""
    ledger, plan, schema = ledger_of_tickets(folder, 99.0, 180), plan_of(target, **changes), schema_of()
    fit = fit_of(base, plan, **changes)
    purpose = "reference" if math.isinf(target) else "release"
    with opened_by("phrases", private, ledger, schema, plan, purpose) as view:
        told = fit.ask(view)
    return fit, told, [(charge.query, charge.own_delta, charge.state) for charge in ledger.charges("tickets")]


# What it costs.


@pytest.mark.parametrize("changes", [{}, {"label_counts": "prior"}, {"delta_share": 0.5}])
@pytest.mark.parametrize("target", [0.5, 3.0])
def test_both_questions_spend_the_budget_by_both_accountants(changes, target) -> None:
    plan = plan_of(target, **changes)
    assert plan.own_delta == DELTA * changes.get("delta_share", DELTA_SHARE)
    left = DELTA - plan.own_delta
    assert target * (1 - 5e-3) <= epsilon(plan.event, left) <= target
    assert target <= epsilon(plan.event, left, "rdp") <= 1.4 * target
    names = [query.name for query in plan.queries]
    assert names == ["label_histogram", "key_phrases"][bool(changes.get("label_counts")) :]


def test_without_labels_phrases_are_all_that_is_asked() -> None:
    plan = plan_of(3.0, schema_of({}))
    assert [query.name for query in plan.queries] == ["key_phrases"]
    assert plan.event == dpa.ComposedDpEvent([dpa.GaussianDpEvent(plan.numbers["sigma"])])


def test_a_reference_adds_no_noise() -> None:
    plan = plan_of(math.inf)
    assert not is_private(plan.event)
    assert (plan.own_delta, plan.feasible) == (0.0, True)


def test_a_threshold_that_no_class_reaches_is_no_plan(base) -> None:
    assert plan_of(3.0).feasible
    plan = plan_of(3.0, schema_of(n_public=16))
    assert not plan.feasible
    assert "lower phrases.most" in plan.notes[0]
    with pytest.raises(ParamsError, match="cannot work"):
        fit_of(base, plan)


@pytest.mark.parametrize("about", ["{label}", "{phrases} {phrases}", ""])
def test_a_prompt_shows_phrases_once(about) -> None:
    with pytest.raises(ValidationError, match="phrases"):
        settings_of(prompt={"about": about})


def test_prompts_are_tried_before_a_row_is_read(base) -> None:
    with pytest.raises(ParamsError, match="slots"):
        fit_of(base, plan_of(3.0), prompt={"plain": "{nothing}"})
    with pytest.raises(ModelError, match="no room"):
        fit_of(base, plan_of(3.0), prompt={"about": "well " * 30 + "{phrases}"})


# What it is told.


def test_phrases_of_many_units_come_out_and_are_charged(tmp_path, base) -> None:
    _, told, charged = asked(tmp_path, base, 30.0)
    assert charged == [("label_histogram", 0.0, "committed"), ("key_phrases", DELTA * DELTA_SHARE, "committed")]
    own = {label: set(weights) - {"order"} for label, weights in told.weights.items()}  # which all rows have
    assert own == {"refund": {"lamp", "leaks"}, "praise": {"oven", "hums"}}
    assert sum(told.counts.values()) == 12


def test_what_one_unit_says_does_not_come_out(tmp_path, base) -> None:
    _, told, _ = asked(tmp_path, base, 30.0, [*ROWS, PrivateRow("zeta", "refund")])
    assert not any("zeta" in phrase for own in told.weights.values() for phrase in own)


def test_a_phrase_weighs_what_the_label_has_beyond_its_share() -> None:
    found = [(0, "lamp", 30), (1, "lamp", 30), (0, "oven", 40)]
    assert weigh_phrases(found, {"a": 0.25, "b": 0.75}) == {"a": {"lamp": 15.0, "oven": 30.0}, "b": {}}
    assert weigh_phrases(found[1:2], {"a": 0.25, "b": 0.75}) == {"a": {}, "b": {"lamp": 7.5}}
    assert weigh_phrases([(0, "lamp", 30)], {"": 1.0}) == {"": {"lamp": 30}}


def test_phrases_are_drawn_by_their_weights_without_a_word_twice() -> None:
    weights = {"lamp": 3.0, "lamp hums": 1.0, "oven": 1.0}
    drawn = [draw_phrases(weights, 2, coins(number)) for number in range(1000)]
    firsts = Counter(own[0] for own in drawn)
    assert firsts["lamp"] / 1000 == pytest.approx(0.6, abs=0.06)
    assert all(set(own) in ({"lamp", "oven"}, {"lamp hums", "oven"}) for own in drawn)
    assert draw_phrases(weights, 1, coins(1)) == draw_phrases(weights, 1, coins(1))
    assert draw_phrases({}, 3, coins(1)) == []


# What it writes.


def made(base: Path, weights: dict[str, dict[str, float]], **changes: Any) -> Made:
    return fit_of(base, plan_of(3.0, **changes), **changes).made(Told({"refund": 6, "praise": 4}, weights))


def test_rows_are_written_behind_phrases_and_the_same_ones_each_time(base) -> None:
    about, plain = {"refund": {"lamp": 5.0}, "praise": {}}, {"refund": dict[str, float](), "praise": {}}
    rows = made(base, about).rows
    assert Counter(row.label for row in rows) == {"refund": 6, "praise": 4}
    assert list(rows) == list(made(base, about).rows)
    other = made(base, plain).rows
    assert list(rows[6:]) == list(other[6:])
    assert list(rows[:6]) != list(other[:6])


def test_filters_are_written_against_and_counted(base) -> None:
    found = made(base, {"refund": {"lamp": 5.0}, "praise": {}}, filters={"chain": ["length"], "min_words": 5})
    assert found.removed["length"] == found.drawn - len(found.rows)
    assert all(len(row.text.split()) == 5 for row in found.rows)


def test_rows_without_labels_have_none(tmp_path, base) -> None:
    schema = schema_of({})
    plan = plan_of(3.0, schema)
    rows = fit_of(base, plan, schema).made(Told({"": 3}, {"": {"lamp": 1.0}})).rows
    assert [row.label for row in rows] == [None] * 3


class Exact:
    """A view that answers without noise, and notes what it answered."""

    def __init__(self, rows: Sequence[PrivateRow]) -> None:
        self.rows, self.told = rows, dict[str, dict[Any, int]]()

    def ask(self, query: Any) -> Any:
        answer = query.run(self.rows, NoiseSource())
        self.told[query.name] = answer if isinstance(answer, dict) else {one[:2]: one[2] for one in answer}
        return answer


def test_on_neighbours_each_question_moves_by_its_sensitivity(base) -> None:
    fit = fit_of(base, plan_of(math.inf))
    more, less = Exact(ROWS), Exact(ROWS[1:])
    for view in (more, less):
        fit.ask(view)
    moved = {
        name: sorted(abs(told[key] - less.told[name].get(key, 0)) for key in told) for name, told in more.told.items()
    }
    assert moved == {"label_histogram": [0, 1], "key_phrases": [0, 0, 0, 0, 1, 1, 1]}
