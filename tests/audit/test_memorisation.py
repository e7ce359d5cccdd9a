"""Copies, personal values and secrets are found, exactly so; what the control has too is no excess."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from palimpsest.audit.memorisation import (
    LikenessRules,
    MemorisationAudit,
    Secrets,
    contrast,
    edit_distance_within,
    extraction,
    memorisation,
    near_duplicates_of,
    paired_excess,
    personal_data,
    similar_pairs,
)
from palimpsest.audit.personal import KINDS, personal_values
from palimpsest.audit.units import Released
from palimpsest.errors import DataError
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.records.duplicates import shingles_of
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.segment import words
from palimpsest.records.write import write_public, write_split, write_synthetic
from stages import memorisation_audit
from tools.world.generate import WorldSettings, make_world, save_facts

ROOT = Path(__file__).parents[2]
_WORLD = WorldSettings(
    seed=3, private_rows=300, test_rows=50, public_rows=100, public_test_rows=50, products=4, public_products=12,
    facts=8, support_low=10, support_high=60, public_pairs=40, canaries=4, canary_repeats=(1, 2, 4),
)  # fmt: skip
USUAL = LikenessRules(similarity=0.7, shingle=3, closeness=0.8)


def sentences(rng: np.random.Generator, count: int, vocabulary: int = 300, longest: int = 20) -> list[str]:
    frequent = 1.0 / np.arange(1, vocabulary + 1)
    sizes = rng.integers(0, longest, size=count)
    return [" ".join(f"w{word}" for word in rng.choice(vocabulary, n, p=frequent / frequent.sum())) for n in sizes]


def corpora(synthetic=("a",), members=("b",), holdout=("c",), public=()) -> Released:
    return Released(*([Record(text) for text in side] for side in (synthetic, members, holdout)), list(public))


# Near-duplicates.


def jaccard(one: str, other: str, shingle: int) -> float:
    left, right = (shingles_of(words(text), shingle) if words(text) else frozenset() for text in (one, other))
    return len(left & right) / len(left | right) if left and right else 0.0


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("shingle", [1, 3])
def test_similar_pairs_are_those_of_all_comparisons(similarity: float, shingle: int) -> None:
    rng = np.random.default_rng(int(similarity * 100) + shingle)
    others = sentences(rng, 60, vocabulary=12, longest=12)
    texts = sentences(rng, 40, vocabulary=12, longest=12) + [text.upper() + "!" for text in others[:5]] + ["", "?"]
    expected = {
        (row, other)
        for row, one in enumerate(texts)
        for other, two in enumerate(others)
        if jaccard(one, two, shingle) >= similarity - 1e-12
    }
    found = list(similar_pairs(texts, others, similarity, shingle))
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert len(expected) >= 5


def test_a_text_with_one_word_changed_is_a_near_duplicate_and_one_of_other_words_is_not() -> None:
    text = "one two three four five six seven eight nine ten eleven twelve"
    texts = [text.replace("twelve", "thirteen"), text.replace("six", "sixteen"), "none of these words is in there"]
    assert list(similar_pairs(texts, [text], 0.7, 3)) == [(0, 0)]  # a change in the middle spoils three shingles of ten
    assert set(similar_pairs(texts, [text], 0.5, 3)) == {(0, 0), (1, 0)}


def test_copies_are_counted_from_both_ends() -> None:
    rng = np.random.default_rng(0)
    members, holdout, public, fresh = (sentences(rng, 100, vocabulary=5000, longest=30) for _ in range(4))
    long = [text for text in members if len(words(text)) > 5][:20]
    found = near_duplicates_of(corpora(long * 2 + [public[0]] + fresh[:59], members, holdout, public), USUAL)
    assert (found.train.count, found.train.n, found.holdout.count, found.public.count) == (40, 100, 0, 1)
    assert found.excess.value == pytest.approx(0.4)
    assert found.excess.low > 0.25
    assert (found.records.exposed.count, found.records.exposed.n, found.records.control.count) == (20, 100, 0)
    assert found.records.p == pytest.approx(fisher_exact([[20, 80], [0, 100]], "greater").pvalue)


def test_one_record_repeated_often_proves_little() -> None:
    """It says of one coin that it fell right: the rows would seem sure, the records are not."""
    text = "the same old sentence again and again"
    found = near_duplicates_of(corpora([text] * 50, [text, "other words here"], ["nothing alike", "nor this"]), USUAL)
    assert found.train.count == 50
    assert found.excess.low > 0.8
    assert found.records.p == 0.5


def test_what_both_sides_have_is_no_excess() -> None:
    text = "the same old sentence again and again"
    found = near_duplicates_of(corpora([text] * 9 + ["else"], [text, "b"], [text, "c"]), USUAL)
    assert (found.train.count, found.holdout.count, found.excess.value) == (9, 9, 0.0)
    assert found.excess.low == pytest.approx(-found.excess.high)
    assert found.records.p > 0.5


def test_without_copying_false_alarms_are_rare() -> None:
    """Private texts resemble public ones, and what was written is public: coins decide who is like it."""
    rng = np.random.default_rng(5)
    alarms = []
    for _ in range(60):
        pool = rng.permutation([f"{start} {end} please" for start in ("call", "mail", "tell") for end in "abcdefghij"])
        written = [str(text) for text in rng.choice(pool, 12)]
        alarms.append(near_duplicates_of(corpora(written, pool[:15], pool[15:]), USUAL).records.p)
    assert np.mean(np.array(alarms) <= 0.1) <= 0.2
    assert np.mean(np.array(alarms) <= 0.9) >= 0.6


# Personal data.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to A.Lee+x@Post.Example.", {("email", "a.lee+x@post.example")}),
        ("a@b", set()),
        ("IBAN de89 3704 0044 0532 0130 00 thanks", {("iban", "de89370400440532013000")}),
        ("AT61 1904 3002 3457 3201 here", {("iban", "at611904300234573201")}),
        ("de88 3704 0044 0532 0130 00", set()),  # a wrong check digit
        ("4111-1111 1111 1111", {("card", "4111111111111111")}),
        ("+44 (20) 7946-0958", {("phone", "442079460958")}),
        ("0044 20 7946 0958", {("phone", "442079460958")}),
        ("ring 0123 456 7890 today", {("phone", "01234567890")}),
        ("(415) 555-0123, 415-555-0123", {("phone", "4155550123")}),
        ("order KX-4829-1234‑AB", {("identifier", "kx48291234ab")}),
        ("2019-01-02, 01.02.2003 10.30, 31/12/1999", set()),
        ("99.50 for 12 or 1,000 in 1998-2001", set()),
        ("so said Mary Ann O'Neil at noon", {("name", "mary ann o'neil")}),
        ("Mary said so", set()),
        ("ask Jean-Luc McDonald Smith", {("name", "jean-luc mcdonald smith")}),
    ],
)  # fmt: skip
def test_personal_values_of_a_text(text: str, expected: set[tuple[str, str]]) -> None:
    found = personal_values(text)
    assert found == expected
    assert {kind for kind, _ in found} <= set(KINDS)


def test_a_changed_digit_of_a_card_is_no_card() -> None:
    digits = "4111111111111111"
    kinds = Counter(
        kind
        for place in range(16)
        for kind, _ in personal_values(digits[:place] + str((int(digits[place]) + 1) % 10) + digits[place + 1 :])
    )
    assert kinds["card"] == 0
    assert kinds["identifier"] == 16


def test_values_are_taken_once_and_as_their_own_kind() -> None:
    found = personal_values("+1 415 555 0123 or 4111 1111 1111 1111 or ann4111111@post.example")
    assert Counter(kind for kind, _ in found) == {"phone": 1, "card": 1, "email": 1}


@settings(max_examples=200, deadline=1000)
@given(st.text(alphabet="aZ09 @.+-()/é１", max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    assert all(kind in KINDS and value for kind, value in personal_values(text))


def test_personal_values_count_once_and_the_holdout_is_taken_off() -> None:
    members = ["mine: ann@post.example", "ask help@shop.example", "nothing", "bob@post.example"]
    holdout = ["yours: eve@post.example", "ask help@shop.example", "nothing"]
    written = ["ANN@post.example wrote", "ann@post.example again", "help@shop.example", "new@post.example"]
    found = personal_data(corpora(written, members, holdout, ["public: help@shop.example"]))
    mail = found["email"]
    assert set(found) == set(KINDS)
    assert (mail.train.count, mail.holdout.count, mail.public.count, mail.train.n) == (2, 1, 1, 3)
    assert mail.excess.value == pytest.approx(1 / 3)
    exposed, control = mail.records.exposed, mail.records.control
    assert (exposed.count, exposed.n, control.count, control.n) == (2, 3, 1, 2)
    assert found["phone"].train.n == 0
    assert (found["phone"].excess.low, found["phone"].excess.high, found["phone"].records.p) == (-1.0, 1.0, 1.0)


def test_no_value_is_written_down() -> None:
    text = "ann@post.example, +44 20 7946 0958, Ann Lee, 4111 1111 1111 1111, falcon amber tiger"
    secrets = Secrets(("falcon amber tiger",), ("marble needle orange",))
    audit = memorisation(corpora([text], [text], ["else"]), secrets, USUAL, seed=0)
    document = audit.to_json("dp3")
    assert (document["variant"], document["zone"]) == ("dp3", "internal")
    assert {kind: part["train"]["count"] for kind, part in document["personal"].items()} == {
        "email": 1, "iban": 0, "card": 1, "phone": 1, "identifier": 0, "name": 1,
    }  # fmt: skip
    assert MemorisationAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert not any(word in f"{json.dumps(document)}{audit!r}" for word in ("ann", "7946", "4111", "falcon"))


# Planted secrets.


def table_distance(secret: str, text: str) -> int:
    """Sellers' table, a cell at a time."""
    column = list(range(len(secret) + 1))
    best = column[-1]
    for character in text:
        above, column = column, [0]
        for place, letter in enumerate(secret):
            column.append(min(above[place] + (letter != character), above[place + 1] + 1, column[place] + 1))
        best = min(best, column[-1])
    return best


@settings(max_examples=300, deadline=None)
@given(st.text("ab ", min_size=1, max_size=9), st.text("ab c", max_size=25))
def test_the_edit_distance_is_that_of_the_table(secret: str, text: str) -> None:
    assert edit_distance_within(secret, text) == table_distance(secret, text)


def test_the_edit_distance_of_a_long_secret() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        secret, text = ("".join(rng.choice(list("abc"), size)) for size in (90, 200))
        assert edit_distance_within(secret, text) == table_distance(secret, text)


def test_secrets_are_found_exactly_and_nearly_and_decoys_are_the_control() -> None:
    planted = ("amber 45 tiger falcon", "kitten basket 63 ember", "ginger 7 hammer jacket", "walnut 9 zebra anchor")
    decoys = ("bottle copper dragon 12", "engine forest 18 guitar")
    texts = [
        "the code is AMBER-45, tiger falcon.",
        "my code: kitten baskets 64 ember!",
        "ginger 7 and a hammer in a bag",  # too far
        "xwalnut 9 zebra anchors",  # no word of its own, but all letters
        "bottle",
    ]
    found = extraction(Secrets(planted, decoys), texts, USUAL)
    assert (found.exact.exposed.count, found.exact.exposed.n, found.exact.control.count) == (1, 4, 0)
    assert (found.near.exposed.count, found.near.exposed.n, found.near.control.n) == (3, 4, 2)
    assert found.near.control.count == 0
    assert extraction(Secrets(decoys, planted), texts, USUAL).near.control.count == 3


@pytest.mark.parametrize("closeness", [0.5, 0.8, 0.95, 1.0])
def test_looking_for_pieces_first_misses_no_near_match(closeness: float) -> None:
    rng = np.random.default_rng(int(closeness * 100))
    letters = list("abcdef")
    secrets = ["".join(rng.choice(letters, 20)) for _ in range(30)]
    texts = ["".join(rng.choice(letters, 8)) + secret + "f" for secret in secrets]
    for index, text in enumerate(texts):  # more and more damage
        places = rng.choice(len(text), index // 3, replace=False)
        texts[index] = "".join(letters[rng.integers(6)] if place in places else c for place, c in enumerate(text))
    edits = int((1 - closeness) * 20 + 1e-9)
    for secret in secrets:
        expected = any(table_distance(secret, text) <= edits for text in texts)
        found = extraction(Secrets((secret,), ("zzzz zzzz",)), texts, LikenessRules(0.7, 3, closeness))
        assert found.near.exposed.count == expected


@pytest.mark.parametrize("secrets", [Secrets((), ("a",)), Secrets(("a",), ()), Secrets(("a", "?!"), ("b",))])
def test_secrets_without_control_or_words_are_errors(secrets: Secrets) -> None:
    with pytest.raises(DataError):
        extraction(secrets, ["text"], USUAL)


# Counts and intervals.


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((5, 56, 0, 29), -0.0381, 0.1926)],
)  # fmt: skip
def test_intervals_of_newcombe_1998(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    """Table II of the paper on independent proportions, method 10."""
    excess = contrast(*counts).excess
    assert (excess.low, excess.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_the_p_value_is_the_share_of_all_dealings() -> None:
    hits, members = [True, True, True, False, False, False, False], 3
    dealings = [sum(hits[index] for index in chosen) for chosen in combinations(range(7), members)]
    for exposed in range(4):
        expected = np.mean([dealt >= exposed for dealt in dealings])
        assert contrast(exposed, members, 3 - exposed, 7 - members).p == pytest.approx(expected)


@pytest.mark.parametrize(("first", "second", "both"), [(0.3, 0.2, 0.1), (0.4, 0.3, 0.2), (0.1, 0.05, 0.0)])
def test_paired_intervals_hold_the_difference_as_often_as_they_say(first: float, second: float, both: float) -> None:
    rng = np.random.default_rng(1)
    shares = [both, first - both, second - both, 1 - first - second + both]
    drawn = rng.multinomial(80, shares, size=1000)
    found = [paired_excess(b + f, b + s, b, 80) for b, f, s, _ in drawn.tolist()]
    held = np.mean([one.low <= first - second <= one.high for one in found])
    assert 0.93 <= held <= 0.995
    assert all(
        one.value == pytest.approx((f - s) / 80) for one, (_, f, s, _) in zip(found, drawn.tolist(), strict=True)
    )


def test_pairs_that_go_together_make_the_interval_narrow() -> None:
    together, apart = paired_excess(30, 30, 30, 100), paired_excess(30, 30, 9, 100)
    assert together.high - together.low < 0.6 * (apart.high - apart.low)
    against = paired_excess(30, 30, 0, 100)
    assert against.high - against.low > apart.high - apart.low


# Inputs, and the stage.


@pytest.mark.parametrize("empty", ["synthetic", "members", "holdout"])
def test_empty_sides_are_errors(empty: str) -> None:
    with pytest.raises(DataError):
        corpora(**{empty: ()})


@pytest.mark.parametrize("wrong", [{"similarity": 0}, {"similarity": 1.1}, {"shingle": 0}, {"closeness": 0}])
def test_settings_out_of_range_are_errors(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LikenessRules(**{"similarity": 0.7, "shingle": 3, "closeness": 0.8, **wrong})


def test_the_stage_finds_what_was_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(_WORLD)
    monkeypatch.chdir(tmp_path)
    for name in (FILE, RESOLVED):
        shutil.copy(ROOT / name, tmp_path)
    private = [SplitRow(row.text, row.label, guess=True) for row in world.private]
    (tmp_path / "data/private").mkdir(parents=True)
    (tmp_path / "data/public").mkdir()
    (tmp_path / "data/raw").mkdir()
    write_split("data/private/train.parquet", [*private[:150], SplitRow("not guessed about", None)])
    write_split("data/private/holdout.parquet", private[150:])
    write_public("data/public/train.parquet", [Record(row.text) for row in world.public])
    save_facts(world.facts, "data/raw/facts.json")
    (tmp_path / "data/synthetic").mkdir()
    secret = world.facts.canaries[0].value
    written = [*(row.text for row in world.private[:20]), "not guessed about", f"my code is {secret}"]
    write_synthetic([Record(text, "returns") for text in written], "data/synthetic/dp3", "text", "label")
    memorisation_audit.run("dp3")
    found = json.loads(Path("reports/metrics/dp3/memorisation.json").read_text())
    assert found["near_duplicates"]["records"]["exposed"]["n"] == 150
    assert found["near_duplicates"]["records"]["exposed"]["count"] >= 20
    assert found["near_duplicates"]["records"]["excess"]["p"] < 1e-3
    assert found["secrets"]["exact"]["exposed"]["count"] >= 1
    assert found["secrets"]["exact"]["control"] == {**found["secrets"]["exact"]["control"], "count": 0, "n": 200}


def test_the_stage_starts_without_torch() -> None:
    code = "import sys, stages.memorisation_audit; sys.exit(bool({'torch', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
