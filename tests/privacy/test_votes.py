"""Votes: one record moves at most sqrt(k) of all counts, noise is what is charged, and no clean count is kept anywhere.

With sigma 0 counts are exact, so sensitivities are compared as whole numbers. Each fault planted at the end must be
seen by one of the checks.
"""

import contextlib
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, count, product
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palimpsest.errors import BackendError, LedgerError, ModelError
from palimpsest.privacy import votes
from palimpsest.privacy.accounting import gdp_epsilon
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Run
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import Kept, is_for_persons
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.privacy.session import metered
from palimpsest.privacy.view import PrivateView
from palimpsest.privacy.votes import Ballot, DomainBallot, Round, Slate, Vote, VoteRounds, Voters, parts_of
from palimpsest.records.schema import PublicSchema
from tests.machines import own_ledger
from tests.privacy.persons import Data, data_sets, records_in, rows_in
from tests.privacy.persons import neighbours as neighbours_of
from tests.reading import EVERYTHING, reading

LABELS = ("refund", "praise", "outage")
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
RUN = Run("private_evolve", "v", "release", "f", "p")
CORNERS = {
    "": [0.0, 0.0, 0.0], "nan": [np.nan, 1.0, 0.0], "inf": [np.inf, 0.0, -np.inf], "tiny": [5e-324, 0.0, 5e-324],
    "huge": [1e300, -1e300, 0.0], "plain": [1.0, 2.0, -1.0],
}  # fmt: skip
T = 4
SIGMA = 5.0


class Crash(Exception):
    """An attempt that ends in the middle."""


def vector_of(text: str) -> list[float]:
    """Corners of a small grid, so that ties are many."""
    return CORNERS.get(text) or [byte % 5 - 2.0 for byte in hashlib.blake2b(text.encode(), digest_size=3).digest()]


def encode(texts: Sequence[str]) -> np.ndarray:
    return np.array([vector_of(text) for text in texts]).reshape(-1, 3)


def slate_of(texts: Mapping[str, Sequence[str]]) -> Slate:
    return Slate(texts, {label: encode(own) for label, own in texts.items()})


def usable(texts: Sequence[str]) -> int:
    return sum(bool(np.isfinite(vector_of(text)).all() and any(vector_of(text))) for text in texts)


FIRST = slate_of({
    "refund": [f"refund {number}" for number in range(6)],
    "praise": [f"praise {number}" for number in range(5)] + ["", "nan"],
    "outage": [],
})  # fmt: skip
ROWS = [PrivateRow(f"ticket {number}", LABELS[number % 2]) for number in range(40)]
DATA = {
    "mixed": ROWS,
    "one label": ROWS[::2],
    "two": ROWS[:2],
    "none": [],
    "all the same": [ROWS[0]] * 5,
}
EXTRAS = {
    "ordinary": PrivateRow("plain", "refund"),
    "duplicate": ROWS[0],
    "other label": PrivateRow("plain", "praise"),
    "empty": PrivateRow("", "refund"),
    "very long": PrivateRow("a very long text about nothing " * 500, "praise"),
    "not a number": PrivateRow("nan", "refund"),
    "infinite": PrivateRow("inf", "praise"),
    "tiny": PrivateRow("tiny", "refund"),
    "huge": PrivateRow("huge", "refund"),
    "label without candidates": PrivateRow("plain", "outage"),
    "unknown label": PrivateRow("plain", "a question"),
    "no label": PrivateRow("plain", None),
}


@dataclass
class Told:
    """A noise source that gives numbers which are told, and notes how many were asked for at once."""

    numbers: Callable[[int], np.ndarray]
    sizes: list[int] = field(default_factory=list)
    drawn: list[float] = field(default_factory=list)

    def whole_normal(self, size: int, std: float) -> np.ndarray:
        given = self.numbers(size)
        self.sizes.append(size)
        self.drawn.extend(given.tolist())
        return np.rint(given * std).astype(np.int64)


def rising() -> Told:
    """All different numbers, none again."""
    numbers = count(1)
    return Told(lambda size: np.array([0.37 * next(numbers) - 3.1 for _ in range(size)]))


@dataclass
class Counted:
    """A meter that counts nowhere but here."""

    limit: int
    begun: int = 0
    charge: str = "charge"
    resumed: bool = False
    lasting: bool = True

    def begin(self, steps: int) -> None:
        assert self.begun + steps <= self.limit
        self.begun += steps


def next_slate(done: Sequence[Round]) -> Slate:
    """The best half of each label, and texts made of them: a function of noisy counts."""
    last, texts = done[-1], {}
    for label, own in last.texts.items():
        order = np.argsort(-np.array(last.counts[label]), kind="stable")[: (len(own) + 1) // 2]
        best = [own[index] for index in order]
        texts[label] = [*best, *(f"{text}+{len(done)}" for text in best)][: len(own)]
    return slate_of(texts)


def ballot_of(neighbours: int = 2, sigma: float = SIGMA) -> Ballot:
    return Ballot(encode, neighbours, sigma)


def rounds_of(folder: Path | None = None, **changes: Any) -> VoteRounds:
    ballot = Ballot(encode, changes.pop("neighbours", 2), changes.pop("sigma", SIGMA))
    return replace(VoteRounds(ballot, LABELS, FIRST, next_slate, T, folder), **changes)


def flat(counts: Mapping[str, Sequence[int]]) -> list[int]:
    return [number for own in counts.values() for number in own]


def exact(ballot: Ballot, rows: Sequence[PrivateRow], slate: Slate) -> list[int]:
    """All counts of all labels, without noise."""
    quiet = replace(ballot, sigma=0.0)
    return flat(quiet.held(quiet.vectors(rows, LABELS), slate, NoiseSource()))


def moved(ballot: Ballot, rows: Sequence[PrivateRow], *extras: PrivateRow, slate: Slate = FIRST) -> list[list[int]]:
    """What adding each record does to each count; removing it does the opposite."""
    before = exact(ballot, rows, slate)
    after = [exact(ballot, [*rows, extra], slate) for extra in extras]
    return [[new - old for new, old in zip(one, before, strict=True)] for one in after]


def squared(change: Sequence[int]) -> int:
    return sum(each * each for each in change)


# --- what must hold; each planted fault below must break one of these


def check_one_record_moves_k_counts_of_its_label_by_one(_place: Path) -> None:
    """So L2 is sqrt(k) over all labels together, exactly: adding a record raises each count by 0 or 1."""
    for neighbours, rows in product((1, 3, 100), DATA.values()):
        changes = moved(ballot_of(neighbours), rows, *EXTRAS.values())
        for (name, extra), change in zip(EXTRAS.items(), changes, strict=True):
            assert set(change) <= {0, 1}
            assert squared(change) <= neighbours
            own = FIRST.texts.get(extra.label or "", [])
            silent = name in ("empty", "not a number", "infinite")
            assert sum(change) == (0 if silent else min(neighbours, usable(own)))


def check_small_data_sets_one_by_one(_place: Path) -> None:
    kinds = list(EXTRAS.values())[:6]
    for rows in combinations_with_replacement(kinds, 2):
        assert all(squared(change) <= 2 for change in moved(ballot_of(2), rows, *kinds))


def replayed(rows: Sequence[PrivateRow], neighbours: int) -> tuple[Any, Counted, Told, list[tuple[Any, list[int]]]]:
    """Rounds whose noisy counts are told; the answer, meter, draws, and each round's texts and exact counts."""
    given: list[tuple[Any, list[int]]] = []
    meter, noise, held = Counted(T), rising(), Ballot.held

    def frozen(self: Ballot, vectors: Any, slate: Slate, source: Any) -> dict[str, list[int]]:
        told: dict[str, list[int]] = {}
        held(self, vectors, slate, source)  # for its draws
        clean = held(replace(self, sigma=0.0), vectors, slate, NoiseSource())
        given.append((slate.texts, flat(clean)))
        for label, own in clean.items():
            told[label] = [(7 * len(given) + 5 * place) % 11 for place in range(len(own))]
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ballot, "held", frozen)
        answer = rounds_of(neighbours=neighbours).run_steps(rows, noise, meter)  # type: ignore[arg-type]
    return answer, meter, noise, given


def check_replay_with_and_without_a_record(_place: Path) -> None:
    """All that is public is equal; each mechanism is given counts that differ by at most the sensitivity."""
    for neighbours, data in ((1, "mixed"), (3, "two"), (3, "none")):
        rows = DATA[data]
        answer, meter, noise, given = replayed(rows, neighbours)
        for extra in EXTRAS.values():
            other = replayed([*rows[:1], extra, *rows[1:]], neighbours)
            assert (answer, meter, noise.sizes, noise.drawn) == (*other[:2], other[2].sizes, other[2].drawn)
            for (texts, before), (same, after) in zip(given, other[3], strict=True):
                assert texts == same
                assert squared([new - old for new, old in zip(after, before, strict=True)]) <= neighbours


def check_each_count_has_whole_noise_of_its_own(_place: Path) -> None:
    """Over labels and rounds each drawn number is used once: scaled by sqrt(k) sigma, rounded, added."""
    noise, query = rising(), rounds_of(neighbours=3, sigma=1.7)
    answer = query.run_steps(ROWS, noise, Counted(T))  # type: ignore[arg-type]
    clean = [number for one in answer for number in exact(query.ballot, ROWS, slate_of(one["texts"]))]
    noisy = [number for one in answer for number in flat(one["counts"])]
    assert all(type(number) is int for number in noisy)
    assert len(noisy) == len(noise.drawn) == len(set(noise.drawn))
    wanted = [round(number + drawn * math.sqrt(3) * 1.7) for number, drawn in zip(clean, noise.drawn, strict=True)]
    assert noisy == wanted


def noise_of(neighbours: int, sigma: float, size: int, rounds: int, seed: int | None = None) -> np.ndarray:
    """Noise of a real source, (rounds, labels, size), in units of its standard deviation."""
    texts = {label: [f"{label} {number}" for number in range(size)] for label in ("refund", "praise")}
    slate = Slate(texts, dict.fromkeys(texts, np.zeros((size, 3))))  # nobody votes
    query = rounds_of(neighbours=neighbours, sigma=sigma, first=slate, propose=lambda _done: slate, rounds=rounds)
    answer = query.run_steps(ROWS, NoiseSource(seed), Counted(rounds))
    drawn = np.array([list(one["counts"].values()) for one in answer], dtype=np.float64)
    return drawn / math.sqrt(neighbours * sigma**2 + 1 / 12)  # a twelfth for the rounding


def check_noise_is_gaussian_of_what_is_charged(_place: Path) -> None:
    """A chi-square on 120,000 draws sees a standard deviation that is 2 % off."""
    for neighbours, sigma in ((9, 40.0), (1, 3.0)):
        noise = noise_of(neighbours, sigma, 20_000, 3)
        chance = stats.chi2.cdf(np.square(noise).sum(), noise.size)
        assert 1e-6 < chance < 1 - 1e-6
        if sigma > 10:
            jitter = np.random.default_rng(0).uniform(-0.5, 0.5, noise.shape) / (math.sqrt(neighbours) * sigma)
            assert stats.kstest((noise + jitter).ravel(), "norm").pvalue > 1e-6


def check_noise_of_labels_and_rounds_is_independent(_place: Path) -> None:
    noise = noise_of(4, 30.0, 20_000, 3).reshape(6, -1)
    correlations = np.corrcoef(noise)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(20_000)


# Through a ledger and a view.


def always(_charge: Charge) -> bool:
    return True


def new_ledger(folder: Path, epsilon: float = 8.0) -> Ledger:
    ledger = own_ledger(folder)
    ledger.register(Asset("tickets", 1e-5, epsilon, 1000))
    return ledger


def request(query: Any) -> PlannedQuery:
    own_delta, steps = getattr(query, "own_delta", 0.0), getattr(query, "steps", None)
    return PlannedQuery(query.name, query.event(), steps, own_delta=own_delta)


def asked(ledger: Ledger, query: Any, seed: int | None = None, run: Run = RUN, rows: Any = ROWS) -> Any:
    """Ask in a view of its own, as a new process would; nothing is committed."""
    reservation = ledger.reserve("tickets", run, [request(query)], always, again=EVERYTHING)
    return PrivateView(rows, SCHEMA, ledger, reservation, NoiseSource(seed)).ask(query)


def standing(ledger: Ledger) -> list[tuple[str, int]]:
    return [(charge.state, charge.steps_begun) for charge in ledger.charges("tickets")]


@dataclass
class Watch:
    """What an attempt did: votes held with what was begun, and rounds that were done at each proposal."""

    ledger: Ledger
    held: list[int] = field(default_factory=list)
    proposed: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


@contextlib.contextmanager
def watched(ledger: Ledger, where: str = "nowhere", at: int = 0) -> Iterator[Watch]:
    """Note what happens; crash in the `at`-th vote ("vote"), before it is stored ("store"), or after ("stored")."""
    watch, held, save = Watch(ledger), Ballot.held, Kept.save

    def voting(self: Ballot, vectors: Any, slate: Slate, noise: Any) -> Any:
        watch.held.append(standing(ledger)[-1][1])
        if where == "vote" and len(watch.held) == at:
            raise Crash
        watch.answers.append(held(self, vectors, slate, noise))
        return watch.answers[-1]

    def keeping(self: Kept, body: Any) -> None:
        if where == "store" and len(watch.held) == at:
            raise Crash
        save(self, body)
        if where == "stored" and len(watch.held) == at:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ballot, "held", voting)
        patch.setattr(Kept, "save", keeping)
        yield watch


def noting(watch: Watch, query: VoteRounds, failing: int | None = None) -> VoteRounds:
    """The query, with its proposals noted; the one after `failing` finished rounds does not come."""

    def propose(done: Sequence[Round]) -> Slate:
        watch.proposed.append(len(done))
        if len(done) == failing:
            raise BackendError("The author cannot be reached.", "Run again.")
        return next_slate(done)

    return replace(query, propose=propose)


def check_votes_are_counted_before_they_are_held(place: Path) -> None:
    ledger = new_ledger(place)
    with watched(ledger) as watch:
        asked(ledger, noting(watch, rounds_of(place / "kept")))
    assert watch.held == [1, 2, 3, 4]
    assert watch.proposed == [1, 2, 3]
    assert standing(ledger) == [("answered", T)]


def check_a_crash_loses_the_round_that_had_begun(place: Path) -> None:
    for where, lost in (("vote", 1), ("store", 1), ("stored", 0)):
        folder = place / where
        ledger, query = new_ledger(folder), rounds_of(folder / "kept")
        with watched(ledger, where, at=2) as first, pytest.raises(Crash):
            asked(ledger, noting(first, query))
        spent = ledger.balance("tickets").spent
        assert standing(ledger) == [("begun", 2)]
        with watched(ledger) as second:
            answer = asked(ledger, noting(second, query))
        assert second.held == [3, 4]
        assert second.proposed == ([1, 2] if lost else [2, 3])
        stored = first.answers[: 2 - lost]
        assert [one["counts"] for one in answer] == [*stored, *second.answers]
        assert len(answer) == T - lost
        assert (standing(ledger), ledger.balance("tickets").spent) == ([("answered", T)], spent)
        with watched(ledger) as third:
            assert asked(ledger, noting(third, query)) == answer
        assert (third.held, third.proposed, standing(ledger)) == ([], [], [("answered", T)])


def check_never_more_than_t_votes_whatever_crashes(place: Path) -> None:
    for kept in (True, False):
        folder = place / str(kept)
        ledger, query = new_ledger(folder), rounds_of(folder / "kept" if kept else None)
        held: list[int] = []
        for where in ("store", "vote", "store", "nowhere"):
            with watched(ledger, where, at=1) as watch, contextlib.suppress(Crash):
                answer = asked(ledger, noting(watch, query))
            held += watch.held
        assert held == [1, 2, 3, 4]
        assert len(answer) == 1
        with watched(ledger) as watch:
            assert asked(ledger, noting(watch, query)) == answer
        assert (watch.held, standing(ledger)) == ([], [("answered", T)])


def check_a_crash_in_propose_costs_nothing(place: Path) -> None:
    for turn in (1, 3):
        folder = place / str(turn)
        ledger, query = new_ledger(folder), rounds_of(folder / "kept")
        for _ in range(2):
            with watched(ledger) as watch, pytest.raises(BackendError):
                asked(ledger, noting(watch, query, failing=turn))
            assert standing(ledger) == [("begun", turn)]
        assert (watch.held, watch.proposed) == ([], [turn])
        with watched(ledger) as watch:
            assert len(asked(ledger, noting(watch, query))) == T
        assert watch.held == list(range(turn + 1, T + 1))


def check_a_seed_keeps_nothing(place: Path) -> None:
    ledger, query = new_ledger(place, 100.0), rounds_of(place / "kept")
    with watched(ledger, "stored", at=3), pytest.raises(Crash):
        asked(ledger, query, seed=1)
    assert not (place / "kept").exists()
    with watched(ledger) as watch:
        asked(ledger, query, seed=1)
    assert watch.held == [1, 2, 3, 4]
    assert standing(ledger) == [("begun", 3), ("answered", T)]


def check_a_file_of_a_newer_state_is_refused(place: Path) -> None:
    """The ledger would be an old copy."""
    ledger, query = new_ledger(place), rounds_of(place / "kept")
    with watched(ledger, "stored", at=2), pytest.raises(Crash):
        asked(ledger, query)
    (path,) = (place / "kept").iterdir()
    body = json.loads(path.read_text())
    body["begun"] = 3
    body["kept"][0]["texts"]["refund"][0] = "planted"
    path.write_text(json.dumps(body))
    with contextlib.suppress(LedgerError):
        assert "planted" not in json.dumps(asked(ledger, query))


def numbers_in(content: bytes) -> str:
    """All whole numbers of a text, joined, whatever stands between them."""
    return " ".join(re.findall(r"-?\d+", content.decode("latin-1"))) + " "


def tells(content: bytes, secret: Sequence[int]) -> bool:
    """Whether counts stand in some content: as text of any layout, or as the bytes of an array."""
    text = " ".join(map(str, secret)) + " "
    floats = " ".join(f"{number} 0" for number in secret) + " "  # 12.0, 7.0
    kinds = ("<i8", "<i4", "<i2", "<f8", "<f4", ">i8", ">f8")
    joined = numbers_in(content)
    return (
        any(f" {wanted}" in f" {joined}" for wanted in (text, floats))
        or any(np.array(secret).astype(kind).tobytes() in content for kind in kinds)
        or "".join(map(str, secret)).encode() in content
    )


def written_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CROWD = [
    PrivateRow(f"ticket {number} {number * number % 97}", "refund" if number % 3 else "praise") for number in range(900)
]


def check_clean_counts_are_nowhere(place: Path) -> None:
    """No file of a workspace and no line that is printed has the clean counts of a round, at any time of a run."""
    ledger = new_ledger(place)
    secrets: list[list[int]] = []
    seen: dict[tuple[int, str], bytes] = {}
    query, held = rounds_of(place / "models" / "kept"), Ballot.held
    single = Vote(query.ballot, FIRST)

    def spying(self: Ballot, vectors: Any, slate: Slate, noise: Any) -> Any:
        clean = held(replace(self, sigma=0.0), vectors, slate, NoiseSource())
        secrets.extend(own for own in clean.values() if len(own) > 2)
        return held(self, vectors, slate, noise)

    def look(done: Sequence[Round]) -> Slate:
        seen.update({(len(done), name): content for name, content in written_in(place).items()})
        return next_slate(done)

    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        patch.setattr(Ballot, "held", spying)
        asked(ledger, replace(query, propose=look), rows=CROWD)
        asked(ledger, single, run=replace(RUN, stage="vote_select"), rows=CROWD)
    seen |= {(T, name): content for name, content in written_in(place).items()}
    seen[T, "printed"] = told.getvalue().encode()
    assert {name for _, name in seen} >= {"ledger.db", "printed"}
    assert any("kept" in name for _, name in seen)
    assert len(secrets) == 2 * (T + 1)
    assert all(len(set(secret)) > 3 for secret in secrets)
    for secret in secrets:
        assert not [name for name, content in seen.items() if tells(content, secret)]


# Rounds that pick.

PICKING = LimitedDomain(4, 2, 1.5, 1e-7)


def next_vectors(done: Sequence[Round]) -> Slate:
    """Candidates that are no texts: those of the first slate, the picked ones of each label first."""
    picked = done[-1].counts
    return Slate({}, {
        label: np.concatenate([own[picked[label]], np.delete(own, picked[label], axis=0)])
        for label, own in FIRST.vectors.items()
    })  # fmt: skip


def picking(folder: Path | None = None, mechanism: LimitedDomain = PICKING) -> VoteRounds:
    first = Slate({}, FIRST.vectors)
    return VoteRounds(DomainBallot(encode, mechanism), LABELS, first, next_vectors, T, folder)


@contextlib.contextmanager
def told_picks() -> Iterator[list[list[int]]]:
    """Note the votes that each call of the mechanism is given, and answer what is told, the same whatever they are."""
    given: list[list[int]] = []

    def told(_self: LimitedDomain, counts: Sequence[int]) -> list[int]:
        given.append(list(counts))
        return [(len(given) + place) % len(counts) for place in range(2)] if counts else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LimitedDomain, "pick", told)
        yield given


def replayed_picks(rows: Sequence[PrivateRow]) -> tuple[Any, int, list[list[int]]]:
    """The answer, the rounds begun, and what the mechanism was given in each round for each label in turn."""
    meter = Counted(T)
    with told_picks() as given:
        answer = picking().run_steps(rows, NoiseSource(), meter)
    return answer, meter.begun, given


def check_a_record_adds_one_vote_to_one_call_of_each_round(_place: Path) -> None:
    """All that is public is equal; the calls of other labels are given the same, that of its own one vote more."""
    for rows in DATA.values():
        answer, begun, given = replayed_picks(rows)
        assert len(given) == T * len(LABELS)
        assert [sorted(map(len, given[turn : turn + 3])) for turn in range(0, len(given), 3)] == [[0, 6, 7]] * T
        for name, extra in EXTRAS.items():
            other = replayed_picks([*rows[:1], extra, *rows[1:]])
            assert (answer, begun) == other[:2]
            for turn, (before, after) in enumerate(zip(given, other[2], strict=True)):
                change = [new - old for new, old in zip(after, before, strict=True)]
                own = FIRST.texts.get(extra.label or "", []) and extra.label == LABELS[turn % len(LABELS)]
                silent = name in ("empty", "not a number", "infinite")
                assert sorted(change)[-1:] == ([] if not change else [int(bool(own) and not silent)])
                assert sum(map(abs, change)) <= 1


def check_picks_are_charged_for_all_rounds(place: Path) -> None:
    """In the ledger: T calls, and T deltas beside their event."""
    ledger, query = new_ledger(place), picking(place / "kept")
    answer = asked(ledger, query)
    (charge,) = ledger.charges("tickets")
    assert charge.event == dpa.SelfComposedDpEvent(dpa.ZCDpEvent(2 / (8 * 1.5**2)), T)
    assert (charge.own_delta, charge.steps_begun) == (pytest.approx(T * 1e-7), T)
    assert [set(one["counts"]) for one in answer] == [set(LABELS)] * T
    assert all(one["texts"] == {} for one in answer)
    assert all(len(own) <= 2 for one in answer for own in one["counts"].values())


def check_picks_go_on_after_a_crash(place: Path) -> None:
    """The picks of finished rounds are kept, and nothing of one that was begun and not stored."""
    ledger, query = new_ledger(place), picking(place / "kept")
    held, finished = DomainBallot.held, []

    def failing(self: DomainBallot, *arguments: Any) -> Any:
        if len(finished) == 2:
            raise Crash
        finished.append(held(self, *arguments))
        return finished[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DomainBallot, "held", failing)
        with pytest.raises(Crash):
            asked(ledger, query, rows=CROWD)
    assert standing(ledger) == [("begun", 3)]
    assert any(finished[0].values())
    answer = asked(ledger, query, rows=CROWD)
    assert [one["counts"] for one in answer[:2]] == finished
    assert (len(answer), standing(ledger)) == (T - 1, [("answered", T)])
    assert asked(ledger, query) == answer


def check_votes_behind_picks_are_nowhere(place: Path) -> None:
    secrets: list[list[int]] = []
    pick = LimitedDomain.pick

    def spying(self: LimitedDomain, counts: Sequence[int]) -> list[int]:
        secrets.append(list(counts))
        return pick(self, counts)

    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        patch.setattr(LimitedDomain, "pick", spying)
        asked(new_ledger(place), picking(place / "kept"), rows=CROWD)
    seen = written_in(place) | {"printed": told.getvalue().encode()}
    assert any("kept" in name for name in seen)
    assert len([secret for secret in secrets if len(set(secret)) > 3]) == 2 * T
    for secret in filter(None, secrets):
        assert not [name for name, content in seen.items() if tells(content, secret)]


def check_exact_picks_are_kept_nowhere(place: Path) -> None:
    ledger, query = new_ledger(place), picking(place / "kept", replace(PICKING, scale=0.0))
    answer = asked(ledger, query, run=replace(RUN, purpose="reference"), rows=CROWD)
    assert not (place / "kept").exists()
    assert ledger.charges("tickets")[0].own_delta == 0.0
    votes_of = {label: exact(Ballot(encode, 1, 0.0), CROWD, slate_of({label: FIRST.texts[label]})) for label in LABELS}
    for label, own in votes_of.items():
        assert answer[0]["counts"][label] == sorted(range(len(own)), key=lambda index: (-own[index], index))[:2]


CHECKS = [
    check_one_record_moves_k_counts_of_its_label_by_one,
    check_small_data_sets_one_by_one,
    check_replay_with_and_without_a_record,
    check_each_count_has_whole_noise_of_its_own,
    check_noise_is_gaussian_of_what_is_charged,
    check_noise_of_labels_and_rounds_is_independent,
    check_votes_are_counted_before_they_are_held,
    check_a_crash_loses_the_round_that_had_begun,
    check_never_more_than_t_votes_whatever_crashes,
    check_a_crash_in_propose_costs_nothing,
    check_a_seed_keeps_nothing,
    check_a_file_of_a_newer_state_is_refused,
    check_clean_counts_are_nowhere,
    check_a_record_adds_one_vote_to_one_call_of_each_round,
    check_picks_are_charged_for_all_rounds,
    check_picks_go_on_after_a_crash,
    check_votes_behind_picks_are_nowhere,
    check_exact_picks_are_kept_nowhere,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_holds(tmp_path, check):
    check(tmp_path)


# --- persons

PLACES = {"right": [1.0, 0.0], "up": [0.0, 2.0], "nowhere": [0.0, 0.0], "left": [-3.0, 0.0]}
PERSON_SLATE = Slate({}, {
    label: np.array([PLACES[name] for name in ("right", "up", "left")]) for label in ("refund", "praise")
})  # fmt: skip
KINDS = [
    ("right", "refund"), ("up", "refund"), ("right", "praise"), ("up", "praise"), ("nowhere", "refund"),
    ("right", "a question"),
]  # fmt: skip
PARTS = parts_of(replace(SCHEMA, unit_column="author", n_persons=100, max_rows_per_unit=3))


def located(texts: Sequence[str]) -> np.ndarray:
    return np.array([PLACES[text] for text in texts])


def person_votes(rows: Sequence[PrivateRow], neighbours: int) -> list[int]:
    """Exact counts of all labels, in parts of a vote."""
    ballot = Ballot(located, neighbours, 0.0, PARTS)
    held = ballot.held(ballot.vectors(rows, tuple(PERSON_SLATE.vectors)), PERSON_SLATE, NoiseSource())
    return [round(number * PARTS) for own in held.values() for number in own]


def longest_move(neighbours: int, kinds: int, most: int, persons: int) -> int:
    """The largest squared L2 distance, in parts of a vote, to a neighbour without a person."""
    answers: dict[Data, list[int]] = {}
    worst = 0
    for data in data_sets(KINDS[:kinds], most, persons):
        answers[data] = person_votes(rows_in(data), neighbours)
        for other in neighbours_of(data):
            worst = max(worst, squared([new - old for new, old in zip(answers[data], answers[other], strict=True)]))
    return worst


def each_row_votes(patch):
    patch.setattr(votes, "group_by_person", lambda rows: [[row] for row in rows])


def shortened_in_each_label(patch):
    patch.setattr(votes, "group_by_person", lambda rows: group_by_person([
        PrivateRow(row.text, row.label, f"{row.person} {row.label}") for row in rows
    ]))  # fmt: skip


def added_and_not_shortened(patch):
    patch.setattr(votes, "_clip_votes", lambda _owners, given, _neighbours, parts: given * parts)


class Rounding:
    """Numpy, but for one function."""

    trunc = staticmethod(np.rint)

    def __getattr__(self, name):
        return getattr(np, name)


def rounded_to_the_nearest_part(patch):
    patch.setattr(votes, "np", Rounding())


@pytest.fixture
def quick(monkeypatch):
    """Thousands of votes: what the device can do is not asked each time."""
    monkeypatch.setattr("palimpsest.privacy.nearest.require_exact", lambda _device: None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("neighbours", [1, 2])
@pytest.mark.parametrize(("kinds", "most", "persons"), [(3, 2, 3), (6, 2, 2), (6, 3, 1)])
def test_one_person_moves_the_counts_by_at_most_sqrt_k_in_every_small_data_set(neighbours, kinds, most, persons):
    whole = neighbours * PARTS**2
    assert 0.999 * whole <= longest_move(neighbours, kinds, most, persons) <= whole


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "mutate", [each_row_votes, shortened_in_each_label, added_and_not_shortened, rounded_to_the_nearest_part]
)
def test_the_check_of_persons_catches_mutants(monkeypatch, mutate):
    mutate(monkeypatch)
    assert longest_move(1, 6, 2, 1) > PARTS**2


@pytest.mark.usefixtures("quick")
def test_the_order_of_a_persons_rows_does_not_show():
    for data in data_sets(KINDS, 3, 1):
        assert person_votes(rows_in(data, backwards=True), 2) == person_votes(rows_in(data), 2)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("neighbours", [1, 2, 5])
def test_persons_of_one_row_vote_as_records_do(neighbours):
    for data in data_sets(KINDS, 1):
        whole = exact_on(PERSON_SLATE, records_in(data), neighbours)
        assert person_votes(rows_in(data), neighbours) == [PARTS * number for number in whole]
        assert exact_on(PERSON_SLATE, rows_in(data), neighbours) == whole


def exact_on(slate: Slate, rows: Sequence[PrivateRow], neighbours: int) -> list[int]:
    ballot = Ballot(located, neighbours, 0.0)
    return flat(ballot.held(ballot.vectors(rows, tuple(slate.vectors)), slate, NoiseSource()))


def test_noise_of_persons_is_what_is_charged_in_whole_parts():
    slate = Slate({}, {"refund": np.zeros((4000, 2))})
    ballot = Ballot(located, 3, 0.7, PARTS)
    noisy = np.array(ballot.held({}, slate, NoiseSource(5))["refund"])
    assert np.array_equal(noisy * PARTS, np.rint(noisy * PARTS))
    chance = stats.chi2.cdf(np.square(noisy / (math.sqrt(3) * 0.7)).sum(), noisy.size)
    assert 1e-6 < chance < 1 - 1e-6
    assert json.loads(json.dumps(noisy.tolist())) == noisy.tolist()


def test_parts_are_counted_for_persons_alone():
    assert parts_of(SCHEMA) == 1
    assert PARTS > 1000
    assert is_for_persons(Vote(ballot_of(), FIRST))
    assert is_for_persons(rounds_of())


def given_to_picks(rows: Sequence[PrivateRow]) -> list[int]:
    with told_picks() as given:
        ballot = DomainBallot(located, PICKING)
        ballot.held(ballot.vectors(rows, tuple(PERSON_SLATE.vectors)), PERSON_SLATE, NoiseSource())
    return [number for own in given for number in own]


def one_person_has_one_vote(most: int, persons: int) -> bool:
    """Of one candidate of one label, in every small data set, whatever the order of rows."""
    answers = {data: given_to_picks(rows_in(data)) for data in data_sets(KINDS, most, persons)}
    return all(
        sum(abs(new - old) for new, old in zip(answer, answers[other], strict=True)) <= 1
        for data, answer in answers.items()
        for other in neighbours_of(data)
    ) and all(given_to_picks(rows_in(data, backwards=True)) == answer for data, answer in answers.items())


def every_row_picks(patch):
    patch.setattr(votes, "select_one_each", lambda rows: rows)


def one_row_of_each_label_picks(patch):
    patch.setattr(votes, "select_one_each", lambda rows: list({(row.person, row.label): row for row in rows}.values()))


def the_first_row_picks(patch):
    patch.setattr(votes, "select_one_each", lambda rows: [own[0] for own in group_by_person(rows)])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("most", "persons"), [(2, 2), (3, 1)])
def test_one_person_adds_one_vote_of_one_candidate_of_one_label(most, persons):
    assert one_person_has_one_vote(most, persons)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("mutate", [every_row_picks, one_row_of_each_label_picks, the_first_row_picks])
def test_the_check_of_picks_catches_mutants(monkeypatch, mutate):
    mutate(monkeypatch)
    assert not one_person_has_one_vote(2, 1)


# --- the mechanism in all generality


GRID = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, math.nan, 1e300]), min_size=2, max_size=2)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from(LABELS), st.lists(GRID, max_size=5), min_size=1),
    st.lists(st.tuples(GRID, st.sampled_from([*LABELS, "unheard of", None])), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_one_record_moves_the_counts_by_at_most_sqrt_k_whatever_the_vectors(candidates, rows, neighbours):
    points = [point for point, _ in rows]

    def lookup(texts: Sequence[str]) -> np.ndarray:
        return np.array([points[int(text)] for text in texts])

    texts = {label: [str(place) for place in range(len(own))] for label, own in candidates.items()}
    slate = Slate(texts, {label: np.array(own).reshape(-1, 2) for label, own in candidates.items()})
    private = [PrivateRow(str(place), label) for place, (_, label) in enumerate(rows)]
    (change,) = moved(Ballot(lookup, neighbours, 1.0), private[1:], private[0], slate=slate)
    assert set(change) <= {0, 1}
    assert sum(change) <= neighbours
    touched = [label for label, own in texts.items() for _ in own]
    assert {label for label, each in zip(touched, change, strict=True) if each} <= {private[0].label}


@settings(deadline=None)
@given(st.lists(st.floats(-8.5, 8.5), min_size=13, max_size=13), st.integers(1, 50), st.floats(1e-3, 1e5))
def test_the_answer_is_the_noisy_count_rounded(drawn, neighbours, sigma):
    numbers = iter([drawn[:6], drawn[6:], []])
    noise = Told(lambda size: np.array(next(numbers)))
    ballot = ballot_of(neighbours, sigma)
    answer = flat(ballot.held(ballot.vectors(ROWS, LABELS), FIRST, noise))  # type: ignore[arg-type]
    assert noise.sizes == [6, 7, 0]
    for noisy, number, one in zip(answer, exact(ballot, ROWS, FIRST), drawn, strict=True):
        assert type(noisy) is int
        assert abs(noisy - number - one * ballot.std) <= 0.5 + 1e-12  # rounded, too


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(None)])
def test_no_order_of_rows_shows(order):
    assert exact(ballot_of(3), ROWS[order], FIRST) == exact(ballot_of(3), ROWS, FIRST)


def test_rows_are_encoded_apart_from_those_of_other_labels_and_others_not_at_all():
    given: list[list[str]] = []

    def watching(texts: Sequence[str]) -> np.ndarray:
        given.append(list(texts))
        return encode(texts)

    ballot = replace(ballot_of(), encode=watching)
    found = ballot.vectors([*EXTRAS.values()], ("refund", "praise"))
    assert {label: len(own.units) for label, own in found.items()} == {"refund": 6, "praise": 3}
    assert sorted(map(len, given)) == [3, 6]
    assert "a question" not in found


def test_a_task_without_labels_has_one_vote_for_all():
    rows = [PrivateRow(row.text, None) for row in ROWS]
    slate = slate_of({"": ["one", "two", "three"]})
    counts = Ballot(encode, 1, 0.0)
    assert sum(counts.held(counts.vectors(rows, ("",)), slate, NoiseSource())[""]) == len(
        [row for row in rows if any(vector_of(row.text))]
    )


def test_noise_of_every_allowed_size_fits():
    noise = noise_of(2**20, 2.0**20, 1000, 1)
    assert np.std(noise) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("neighbours", "sigma"), [(0, 1.0), (2**20 + 1, 1.0), (1, -0.1), (1, 2.0**21), (1, math.nan)])
def test_numbers_that_the_arithmetic_does_not_hold_for_are_refused(neighbours, sigma):
    with pytest.raises(ValueError, match="must be"):
        Ballot(encode, neighbours, sigma)


def test_a_slate_has_one_vector_for_each_candidate():
    with pytest.raises(ValueError, match="2 candidates"):
        Slate({"refund": ["one", "two"]}, {"refund": np.zeros((3, 3))})
    with pytest.raises(ValueError, match="candidates of"):
        Slate({"refund": ["one", "two"]}, {"refund": np.zeros((2, 3)), "praise": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="shape"):
        Slate({}, {"refund": np.zeros(3)})


def test_candidates_that_are_no_texts_are_voted_for_alike():
    vectors = Slate({}, FIRST.vectors)
    assert exact(ballot_of(3), ROWS, vectors) == exact(ballot_of(3), ROWS, FIRST)
    vote = Vote(ballot_of(3, 0.0), FIRST)
    assert replace(vote, slate=vectors).run(ROWS, NoiseSource()) == vote.run(ROWS, NoiseSource())


class OtherBallot(Ballot):
    """A subclass could answer clean counts."""


class OtherDomainBallot(DomainBallot):
    """So could this one."""


class OtherDomain(LimitedDomain):
    """And this one."""


@pytest.mark.parametrize(
    "call",
    [
        lambda: Vote(OtherBallot(encode, 1, 1.0), FIRST),
        lambda: Vote(DomainBallot(encode, PICKING), FIRST),  # type: ignore[arg-type]
        lambda: VoteRounds(OtherBallot(encode, 1, 1.0), LABELS, FIRST, next_slate, T),
        lambda: VoteRounds(OtherDomainBallot(encode, PICKING), LABELS, FIRST, next_slate, T),
        lambda: VoteRounds(None, LABELS, FIRST, next_slate, T),  # type: ignore[arg-type]
        lambda: DomainBallot(encode, OtherDomain(4, 2, 1.5, 1e-7)),
    ],
)
def test_a_vote_is_taken_by_known_ballots_alone(call):
    with pytest.raises(LedgerError, match="cannot be taken"):
        call()


@pytest.mark.parametrize("fail", [RuntimeError("cannot read SECRET-8812"), MemoryError()])
def test_an_encoder_that_fails_is_an_error_without_a_row(fail):
    def failing(_texts: Sequence[str]) -> np.ndarray:
        raise fail

    with pytest.raises(ModelError) as raised:
        replace(ballot_of(), encode=failing).vectors([PrivateRow("SECRET-8812", "refund")], LABELS)
    assert "SECRET" not in str(raised.value)


# --- what it costs


def test_the_events_compose():
    assert Vote(ballot_of(7, 3.5), FIRST).event() == dpa.GaussianDpEvent(3.5)
    assert rounds_of(neighbours=7, sigma=3.5).event() == dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(3.5), T)
    assert rounds_of(sigma=0.0).event() == dpa.SelfComposedDpEvent(dpa.NonPrivateDpEvent(), T)
    assert rounds_of().steps == T
    assert (rounds_of().own_delta, ballot_of().own_delta) == (0.0, 0.0)
    assert picking().event() == dpa.SelfComposedDpEvent(PICKING.event(), T)
    assert picking().own_delta == T * PICKING.own_delta
    quiet = picking(mechanism=replace(PICKING, scale=0.0))
    assert (quiet.event(), quiet.own_delta) == (dpa.SelfComposedDpEvent(dpa.NonPrivateDpEvent(), T), 0.0)


def test_the_worst_answers_distinguish_no_better_than_the_charge_says():
    """The likelihood ratio test over all counts of all rounds, for the record that moves k of them in each."""
    sigma, neighbours = 2.0, 4
    ballot = ballot_of(neighbours, sigma)
    shift = math.sqrt(squared(moved(ballot, ROWS, EXTRAS["ordinary"])[0]))
    mu = math.sqrt(T) * shift / (math.sqrt(neighbours) * sigma)
    assert gdp_epsilon(mu, 1e-5) == pytest.approx(gdp_epsilon(math.sqrt(T) / sigma, 1e-5))


def test_rounds_run_in_steps_alone():
    with pytest.raises(LedgerError, match="steps"):
        rounds_of().run(ROWS, NoiseSource())


def test_a_stored_vote_is_replayed_and_an_exact_one_is_not_stored(tmp_path):
    ledger, vote = new_ledger(tmp_path), Vote(ballot_of(), FIRST)
    first = asked(ledger, vote)
    with watched(ledger) as watch:
        assert asked(ledger, vote) == first
    assert watch.held == []
    assert standing(ledger) == [("answered", 0)]
    quiet = replace(vote, ballot=ballot_of(sigma=0.0))
    asked(ledger, quiet, run=replace(RUN, purpose="reference"))
    assert standing(ledger)[-1] == ("begun", 0)


def test_no_file_has_the_clean_counts_of_a_reference(tmp_path):
    """An exact vote is not kept for a retry: a reference costs nothing, and its counts are private."""
    ledger, query = new_ledger(tmp_path), rounds_of(tmp_path / "kept", sigma=0.0)
    answer = asked(ledger, query, run=replace(RUN, purpose="reference"), rows=CROWD)
    for one in answer:
        secret = one["counts"]["refund"]
        assert not [name for name, content in written_in(tmp_path).items() if tells(content, secret)]


def test_a_session_goes_on_under_its_charge_and_ends_committed(tmp_path):
    ledger, query = new_ledger(tmp_path), rounds_of(tmp_path / "kept")

    def session() -> list[Any]:
        run = reading(RUN, ledger, SCHEMA.asset, ROWS)
        with metered(ledger, SCHEMA, run, [request(query)], lambda: ROWS, NoiseSource(), always) as opened:
            return opened.view.ask(query)

    with watched(ledger, "store", at=3), pytest.raises(Crash):
        session()
    assert len(session()) == T - 1
    assert standing(ledger) == [("committed", T)]
    ledger.books()


def test_only_one_of_two_processes_holds_a_round(tmp_path):
    """The second came while the first was thinking of its next slate."""
    ledger, query = new_ledger(tmp_path), rounds_of(tmp_path / "kept")
    later: list[Any] = []

    def overtaken(done: Sequence[Round]) -> Slate:
        if len(done) == 2 and not later:
            later.append(asked(ledger, query))
        return next_slate(done)

    with watched(ledger) as watch, pytest.raises(LedgerError, match="cannot advance"):
        asked(ledger, replace(query, propose=overtaken))
    assert watch.held == [1, 2, 3, 4]
    assert len(later[0]) == T


def test_kept_files_are_the_owners(tmp_path):
    asked(new_ledger(tmp_path), rounds_of(tmp_path / "models" / "kept"))
    assert (tmp_path / "models" / "kept").stat().st_mode & 0o077 == 0


# --- mutants: one fault each, and the check that sees it --------------------------------------------------------------


class Repeating:
    """A source that begins again for everyone who asks."""

    def __init__(self, source: Any) -> None:
        self._source, self._drawn = source, np.zeros(0, dtype=np.int64)

    def whole_normal(self, size: int, std: float) -> np.ndarray:
        if size > len(self._drawn):
            self._drawn = np.concatenate([self._drawn, self._source.whole_normal(size - len(self._drawn), std)])
        return self._drawn[:size]


def one_vote_too_many(patch):
    original = votes.find_nearest
    patch.setattr(votes, "find_nearest", lambda rows, candidates, k, *rest: original(rows, candidates, k + 1, *rest))


def one_vote_too_many_in_full(patch):
    """Shortened, it would still be one unit's whole vote."""
    one_vote_too_many(patch)
    added_and_not_shortened(patch)


def everyone_votes_everywhere(patch):
    held = Ballot.held
    patch.setattr(Ballot, "held", lambda self, rows, slate, noise: held(self, everywhere(rows, slate), slate, noise))


def everywhere(rows, slate):
    """All rows in every label, as if others stood there."""
    vectors = np.concatenate([*(own.vectors for own in rows.values()), np.zeros((0, 3))])
    return {
        label: Voters(vectors, np.arange(len(vectors)) + place * len(vectors))
        for place, label in enumerate(slate.vectors)
    }


def one_noise_for_all_labels(patch):
    held = Ballot.held
    patch.setattr(Ballot, "held", lambda self, rows, slate, noise: held(self, rows, slate, Repeating(noise)))


def one_noise_for_all_rounds(patch):
    held = Ballot.held
    kept = {}

    def mutant(self, rows, slate, noise):
        size = sum(map(len, slate.vectors.values()))
        numbers = kept.setdefault(id(noise), noise.whole_normal(size, 2.0**30) / 2.0**30)
        parts = iter(np.split(numbers, np.cumsum([len(own) for own in slate.vectors.values()])[:-1]))
        return held(self, rows, slate, Told(lambda _size: next(parts)))

    patch.setattr(Ballot, "held", mutant)


def noise_for_one_vote(patch):
    held = Ballot.held
    patch.setattr(
        Ballot,
        "held",
        lambda self, rows, slate, noise: held(
            replace(self, sigma=self.sigma / math.sqrt(self.neighbours)), rows, slate, noise
        ),
    )


def no_noise(patch):
    held = Ballot.held
    patch.setattr(Ballot, "held", lambda self, rows, slate, noise: held(replace(self, sigma=0.0), rows, slate, noise))


def noise_two_percent_small(patch):
    held = Ballot.held
    patch.setattr(
        Ballot,
        "held",
        lambda self, rows, slate, noise: held(replace(self, sigma=self.sigma * 0.98), rows, slate, noise),
    )


def noise_not_rounded(patch):
    def mutant(self, counts, noise):
        drawn = noise.whole_normal(len(counts), 2.0**20 * self.std) / 2.0**20
        return (counts + drawn).tolist() if self.sigma else counts.tolist()

    patch.setattr(Ballot, "_add_noise", mutant)


def divided_by_the_rows(patch):
    original = votes._votes  # noqa: SLF001

    def mutant(rows, slate, *settings):
        sizes = {label: len(rows[label].units) if label in rows else 1 for label in slate.vectors}
        return {label: own / sizes[label] for label, own in original(rows, slate, *settings).items()}

    patch.setattr(votes, "_votes", mutant)


def no_noise_where_nobody_votes(patch):
    held = Ballot.held

    def mutant(self, rows, slate, noise):
        some = Slate({}, {label: own for label, own in slate.vectors.items() if label in rows})
        return {label: [0] * len(own) for label, own in slate.vectors.items()} | held(self, rows, some, noise)

    patch.setattr(Ballot, "held", mutant)


def loop(begin_late=False, votes_again=False, store=None):
    """`VoteRounds.run_steps`, with one fault."""

    def run_steps(self, rows, noise, meter):
        kept = Kept(self.checkpoints, meter)
        done = [Round(**body) for body in kept.load() or []]
        vectors = self.ballot.vectors(rows, self.labels)
        if votes_again:
            done = [Round(one.texts, self.ballot.held(vectors, slate_of(one.texts), noise)) for one in done]
        while meter.begun < meter.limit:
            slate = self.propose(done) if done else self.first
            begin_late or meter.begin(1)
            done.append(Round(dict(slate.texts), self.ballot.held(vectors, slate, noise)))
            begin_late and meter.begin(1)
            kept.save([{"texts": one.texts, "counts": one.counts} for one in done])
            if store is not None:
                clean = replace(self.ballot, sigma=0.0).held(vectors, slate, NoiseSource())
                store(self.checkpoints, clean)
        return [{"texts": one.texts, "counts": one.counts} for one in done]

    return lambda patch: patch.setattr(VoteRounds, "run_steps", run_steps)


def two_votes_behind_picks(patch):
    original = votes._votes  # noqa: SLF001
    patch.setattr(votes, "_votes", lambda rows, slate, _k, parts: original(rows, slate, 2, parts))


def everyone_picks_everywhere(patch):
    held = DomainBallot.held
    patch.setattr(
        DomainBallot, "held", lambda self, rows, slate, noise: held(self, everywhere(rows, slate), slate, noise)
    )


def labels_without_records_are_not_asked(patch):
    held = DomainBallot.held

    def mutant(self, rows, slate, noise):
        some = Slate({}, {label: own for label, own in slate.vectors.items() if label in rows})
        return {label: [] for label in slate.vectors} | held(self, rows, some, noise)

    patch.setattr(DomainBallot, "held", mutant)


def the_delta_of_one_round(patch):
    patch.setattr(VoteRounds, "own_delta", property(lambda self: self.ballot.own_delta))


def the_votes_are_printed(patch):
    pick = LimitedDomain.pick
    patch.setattr(LimitedDomain, "pick", lambda self, counts: print(counts) or pick(self, counts))


def exact_picks_are_kept(patch):
    patch.setattr(DomainBallot, "noisy", True)


def named(name, mutate):
    mutate.__name__ = name
    return mutate


def as_json(folder, clean):
    (folder / "clean.json").write_text(json.dumps(clean, indent=2))


def as_table(folder, clean):
    (folder / "clean.csv").write_text("".join(f"{number};\n" for own in clean.values() for number in own))


def as_bytes(kind):
    def store(folder, clean):
        np.concatenate([np.array(own, dtype=kind) for own in clean.values()]).tofile(folder / "clean.bin")

    return store


def as_line(_folder, clean):
    print("votes", flat(clean))


def seed_lasts(patch):
    patch.setattr(Kept, "_path", property(lambda self: self.folder / f"{self.meter.charge}.json"))


def newer_files_are_read(patch):
    patch.setattr(Kept, "load", lambda self: json.loads(self._path.read_text())["kept"] if self._path.is_file() else [])


def proposed_too_late(patch):
    """Counted before its slate is there: an author that fails costs a round."""

    def run_steps(self, rows, noise, meter):
        kept = Kept(self.checkpoints, meter)
        done = [Round(**body) for body in kept.load() or []]
        vectors = self.ballot.vectors(rows, self.labels)
        while meter.begun < meter.limit:
            meter.begin(1)
            slate = self.propose(done) if done else self.first
            done.append(Round(dict(slate.texts), self.ballot.held(vectors, slate, noise)))
            kept.save([{"texts": one.texts, "counts": one.counts} for one in done])
        return [{"texts": one.texts, "counts": one.counts} for one in done]

    patch.setattr(VoteRounds, "run_steps", run_steps)


def nothing_is_loaded(patch):
    patch.setattr(Kept, "load", lambda self: None)


BEGUN_LATE = named("begun_late", loop(begin_late=True))
VOTED_AGAIN = named("a_kept_round_is_voted_again", loop(votes_again=True))
STORES = {
    "json": as_json,
    "table": as_table,
    **{kind: as_bytes(kind) for kind in ("int64", "int32", "float64", "float32")},
    "printed": as_line,
}

MUTANTS = [
    (one_vote_too_many, check_one_record_moves_k_counts_of_its_label_by_one),
    (one_vote_too_many_in_full, check_replay_with_and_without_a_record),
    (everyone_votes_everywhere, check_one_record_moves_k_counts_of_its_label_by_one),
    (everyone_votes_everywhere, check_small_data_sets_one_by_one),
    (divided_by_the_rows, check_one_record_moves_k_counts_of_its_label_by_one),
    (no_noise_where_nobody_votes, check_replay_with_and_without_a_record),
    (one_noise_for_all_labels, check_each_count_has_whole_noise_of_its_own),
    (one_noise_for_all_labels, check_noise_of_labels_and_rounds_is_independent),
    (one_noise_for_all_rounds, check_each_count_has_whole_noise_of_its_own),
    (one_noise_for_all_rounds, check_noise_of_labels_and_rounds_is_independent),
    (noise_for_one_vote, check_each_count_has_whole_noise_of_its_own),
    (noise_for_one_vote, check_noise_is_gaussian_of_what_is_charged),
    (noise_two_percent_small, check_noise_is_gaussian_of_what_is_charged),
    (no_noise, check_noise_is_gaussian_of_what_is_charged),
    (no_noise, check_clean_counts_are_nowhere),
    (noise_not_rounded, check_each_count_has_whole_noise_of_its_own),
    (BEGUN_LATE, check_votes_are_counted_before_they_are_held),
    (BEGUN_LATE, check_a_crash_loses_the_round_that_had_begun),
    (VOTED_AGAIN, check_a_crash_loses_the_round_that_had_begun),
    (VOTED_AGAIN, check_a_crash_in_propose_costs_nothing),
    (proposed_too_late, check_a_crash_in_propose_costs_nothing),
    (nothing_is_loaded, check_a_crash_loses_the_round_that_had_begun),
    (seed_lasts, check_a_seed_keeps_nothing),
    (newer_files_are_read, check_a_file_of_a_newer_state_is_refused),
    (two_votes_behind_picks, check_a_record_adds_one_vote_to_one_call_of_each_round),
    (everyone_picks_everywhere, check_a_record_adds_one_vote_to_one_call_of_each_round),
    (labels_without_records_are_not_asked, check_a_record_adds_one_vote_to_one_call_of_each_round),
    (the_delta_of_one_round, check_picks_are_charged_for_all_rounds),
    (nothing_is_loaded, check_picks_go_on_after_a_crash),
    (the_votes_are_printed, check_votes_behind_picks_are_nowhere),
    (exact_picks_are_kept, check_exact_picks_are_kept_nowhere),
    *[
        (named(f"clean_counts_as_{name}", loop(store=store)), check_clean_counts_are_nowhere)
        for name, store in STORES.items()
    ],
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda part: part.__name__)
def test_each_planted_fault_is_seen(monkeypatch, tmp_path, mutate, check):
    mutate(monkeypatch)
    with pytest.raises((AssertionError, LedgerError)):
        check(tmp_path)
