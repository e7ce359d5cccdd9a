"""Few-shot generation: record replay of the noisy average, and the metering of a run that stops."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
import torch

from palimpsest.errors import LedgerError
from palimpsest.prediction.contexts import Shape
from palimpsest.prediction.prompts import few_shot_prompter
from palimpsest.prediction.sampling import SENSITIVITY, Sampling
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow, select_one_each
from palimpsest_lab.shots import WriteShots
from tests.prediction.tiny import CONTEXT, model, tokenizer
from tests.prediction.world import EXTRAS, LABELS, ROWS, Counted, new_ledger, opened, request

SAMPLING = Sampling(rate=0.4, charged_rate=0.5, noise_multiplier=0.5, prompts=3, top_k=40, rows=2, longest=4)


def shots(**changes: Any) -> WriteShots:
    """Demonstrations of one label; keyword arguments replace fields."""
    found = WriteShots(
        name="fewshot praise",
        model=model(),
        prompter=few_shot_prompter(tokenizer(), "{label}:", "{text}{separator}", LABELS, text_tokens=20),
        sampling=SAMPLING,
        label="praise",
        allowed=torch.ones(len(tokenizer()), dtype=torch.bool).index_fill(0, torch.tensor([1, 2]), False),
        ends=frozenset({0}),
        shape=Shape(2, 16, CONTEXT, 0),
        stride=3,
    )
    return replace(found, **changes)


class Frozen(NoiseSource):
    """Notes what the noise is added to, tells which token wins, and tells which records are drawn and where they go.

    Attributes:
        extra: the place of one more record among the label's, or None; it is always drawn.
    """

    def __init__(self, extra: int | None = None) -> None:
        super().__init__(seed=0)
        self.extra = extra
        self.noted: list[tuple[torch.Tensor, float]] = []
        self.asked: list[float] = []
        self.sizes: list[int] = []
        self.coins: list[bool] = []

    def bernoulli(self, size: int, rate: float) -> np.ndarray:
        others = size - (self.extra is not None)
        coins = [(len(self.noted) + 3 * index) % 2 == 0 for index in range(others)]
        if self.extra is not None:
            coins.insert(self.extra, True)
        self.coins = coins
        self.asked.append(rate)
        self.sizes.append(size)
        return np.array(coins)

    def integers(self, size: int, high: int) -> np.ndarray:
        """Where each drawn record goes: those of both runs to the same place, whatever else is drawn."""
        others = size - (self.extra is not None)
        places = [(index + len(self.noted)) % high for index in range(others)]
        if self.extra is not None:
            places.insert(sum(self.coins[: self.extra]), len(self.noted) % high)
        return np.array(places)

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        self.noted.append((tensor.clone(), std))
        tensor.zero_()
        tensor[7 * len(self.noted) % len(tensor)] = 1.0


def replay(rows: Sequence[PrivateRow], query: WriteShots, extra: int | None = None) -> tuple[Any, Counted, Frozen]:
    meter, source = Counted(query.steps), Frozen(extra)
    return query.run_steps(rows, source, meter), meter, source


CHANGES = [{}, {"shape": Shape(2, 16, 44, 0)}, {"sampling": replace(SAMPLING, prompts=1)}]
DATA = {"mixed": ROWS, "none": [], "all the same": [ROWS[0]] * 6}


@cache
def without_more(data: str, changes: int) -> tuple[Any, Counted, Frozen]:
    return replay(DATA[data], shots(**CHANGES[changes]))


@pytest.mark.parametrize("changes", range(len(CHANGES)), ids="changes{}".format)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("extra", EXTRAS)
def test_one_record_moves_the_average_by_at_most_sqrt_2_over_m(extra: str, data: str, changes: int) -> None:
    """Also where the model's context is full, and one record more displaces another."""
    query, record, rows = shots(**CHANGES[changes]), EXTRAS[extra], DATA[data]
    own = sum(row.label == "praise" for row in rows[: len(rows) // 2]) if record.label == "praise" else None
    before, one, first = without_more(data, changes)
    after, two, second = replay([*rows[: len(rows) // 2], record, *rows[len(rows) // 2 :]], query, own)
    assert (before, one) == (after, two)
    assert len(first.noted) == len(second.noted) == 8
    most = 0.0 if own is None else 2.0**0.5 / query.sampling.prompts + 1e-12
    for (old, std), (new, same) in zip(first.noted, second.noted, strict=True):
        bare = 2.0**0.5 * query.sampling.noise_multiplier / query.sampling.prompts
        assert bare < std == same < bare * (1 + 1e-6)  # the grid of the noise takes some room
        assert old.shape == new.shape == (40,)
        assert float((old - new).norm()) <= most


AUTHORS = [replace(row, person=f"{number % 7:064x}") for number, row in enumerate(ROWS)]


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("rows", [AUTHORS, [], ROWS], ids=["authors", "none", "records"])
@pytest.mark.parametrize(
    "labels", [["praise"] * 4, ["praise", "a complaint"] * 3, ["a complaint"] * 3, ["praise", None]]
)
def test_one_person_moves_the_average_by_at_most_sqrt_2_over_m(labels, rows, changes) -> None:
    """One coin, one prompt and one row a person, in the demonstrations of one label alone."""
    query, person = shots(**changes), "c0" * 32
    own = [PrivateRow(f"The stove {number} smokes.", label, person) for number, label in enumerate(labels)]
    all_rows = [*own[:1], *rows, *own[1:]]
    before, one, first = replay(rows, query)
    after, two, second = replay(all_rows, query, 0 if select_one_each(own)[0].label == "praise" else None)
    assert (before, one) == (after, two)
    assert set(second.sizes) == {sum(row.label == "praise" for row in select_one_each(all_rows))} - {0}
    most = 2.0**0.5 / query.sampling.prompts + 1e-12 if select_one_each(own)[0].label == "praise" else 0.0
    for (old, std), (new, same) in zip(first.noted, second.noted, strict=True):
        assert std == same
        assert float((old - new).norm()) <= most


def test_a_person_in_every_label_is_in_the_demonstrations_of_one() -> None:
    own = [PrivateRow(f"Row {number}.", label, "c0" * 32) for number, label in enumerate([*LABELS, *LABELS])]
    coins = {label: replay(own, shots(label=label))[2].sizes for label in LABELS}
    assert sorted(len(set(found)) for found in coins.values()) == [0, 1]
    assert {size for found in coins.values() for size in found} == {1}


def test_the_sensitivity_is_nearly_met() -> None:
    """So an average that moves in two prompts would show."""
    pairs = [replay(rows, shots(), own)[2].noted for rows, own in (([], None), ([EXTRAS["ordinary"]], 0))]
    moved = [float((old - new).norm()) for (old, _), (new, _) in zip(*pairs, strict=True)]
    assert max(moved) > 0.6 * SENSITIVITY / SAMPLING.prompts


def test_what_may_be_drawn_is_bit_for_bit_the_same_whatever_the_private_rows(monkeypatch) -> None:
    """Public probabilities that private rows round otherwise could tip a token over the edge of the top k."""
    seen: list[list[torch.Tensor]] = []
    columns = vars(WriteShots)["_columns"]

    def noted(self: WriteShots, public: torch.Tensor, first: bool) -> torch.Tensor:
        seen[-1].append(public.clone())
        return columns(self, public, first)

    monkeypatch.setattr(WriteShots, "_columns", noted)
    for rows in (ROWS, [*ROWS, EXTRAS["ordinary"]], ROWS[1:], []):
        seen.append([])
        replay(rows, shots())
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other, strict=True))


def test_each_record_is_drawn_by_its_own_coin_at_the_rate() -> None:
    _, _, source = replay(ROWS, shots())
    assert set(source.asked) == {SAMPLING.rate}


def test_the_event_is_poisson_sampled_gaussians_or_none() -> None:
    """Of the rate that is charged for all labels."""
    step = dpa.PoissonSampledDpEvent(0.5, dpa.GaussianDpEvent(0.5))
    assert shots().event() == dpa.SelfComposedDpEvent(step, 8)
    assert replace(SAMPLING, noise_multiplier=0.0).event() == dpa.NonPrivateDpEvent()


def test_rounding_beside_a_prompt_has_noise_of_its_own() -> None:
    """One prompt moves by sqrt(2), the M - 1 others by e each."""
    rounded = replace(SAMPLING, rounding=0.01)
    assert SAMPLING.noise_std == pytest.approx(0.5 * 2.0**0.5 / 3)
    assert rounded.noise_std == pytest.approx(0.5 * (2.0**0.5 + 2 * 0.01) / 3)
    assert {std for _, std in replay(ROWS, shots(sampling=rounded))[2].noted} == {rounded.noise_std}


def test_an_example_ends_at_its_end_or_when_it_is_long() -> None:
    answer, meter, _ = replay(ROWS, shots())
    assert len(answer["examples"]) == 2
    assert (answer["drawn"], answer["rest"], meter.asked) == (8, "", [3, 3, 2])
    every = frozenset(range(3, len(tokenizer())))
    ended, meter, _ = replay(ROWS, shots(ends=every, sampling=replace(SAMPLING, top_k=1)))
    assert ended["drawn"] <= 8


def test_no_demonstration_begins_with_its_end() -> None:
    plain = torch.zeros(len(tokenizer()), dtype=torch.bool)
    plain[[0, 70, 71]] = True
    answer, _, source = replay(ROWS, shots(allowed=plain))
    assert len(source.noted[0][0]) == 2
    assert all(answer["examples"])


@pytest.mark.parametrize(
    "wrong", [{"charged_rate": 1.5}, {"rate": 0.6}, {"rate": -0.1}, {"prompts": 0}, {"top_k": 0}, {"longest": 0}]
)
def test_numbers_that_the_accounting_does_not_hold_for_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(SAMPLING, **wrong)


def test_it_runs_in_steps_alone() -> None:
    with pytest.raises(LedgerError, match="steps"):
        shots().run(ROWS, NoiseSource())


class Crash(Exception):
    """An attempt that ends in the middle."""


class Dies(Frozen):
    """Ends the attempt before a noise."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self._before = before

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        if len(self.noted) == self._before:
            raise Crash
        super().add_gaussian(tensor, std)


# By the token that was never drawn, of two demonstrations of 4 tokens, kept at every third: 5 left, 2 left, none left
# beside the first demonstration, which was finished at the sixth.
EXAMPLES = [1, 1, 1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("dies", range(8))
def test_a_stopped_run_goes_on_with_what_its_charge_has_left(tmp_path, dies: int) -> None:
    """No more tokens than were paid for, over both attempts; finished demonstrations are kept."""
    query, source = shots(checkpoints=tmp_path / "kept"), Dies(dies)
    meter = Counted(query.steps)
    with pytest.raises(Crash):
        query.run_steps(ROWS, source, meter)
    again, rest = Counted(query.steps, begun=meter.begun, resumed=True), Frozen()
    answer = query.run_steps(ROWS, rest, again)
    assert len(rest.noted) <= query.steps - meter.begun
    assert dies + len(rest.noted) <= query.steps
    assert answer["drawn"] <= query.steps
    assert len(answer["examples"]) == EXAMPLES[dies]


def test_a_run_is_metered_by_the_ledger(tmp_path) -> None:
    ledger, query = new_ledger(tmp_path), shots(checkpoints=tmp_path / "kept")
    with opened(ledger, [request(query)]) as session:
        answer = session.view.ask(query)
    (charge,) = ledger.charges("tiny")
    assert (charge.state, charge.steps) == ("committed", 8)
    assert answer["drawn"] <= charge.steps_begun <= 8
