"""What the matcher takes for a statement of a fact, and what it does not."""

import json

import pytest

from palimpsest.errors import DataError
from palimpsest.files import write_json
from palimpsest.records.world.facts import (
    CODE_WORDS,
    Canary,
    Facts,
    IndividualFact,
    PhraseIndex,
    PopulationFact,
    draw_decoys,
    load_facts,
    sentences,
    words,
)
from tools.world.details import CANARY_KIND, Mint
from tools.world.draw import Draw
from tools.world.grammar import EARLIER, STATEMENTS, SYMPTOMS, sentence

HUM, HEAT = ("hums at night", "humming at night"), ("overheats while charging", "overheating while charging")
FACTS = Facts(
    population=(
        PopulationFact("heat", "Veltrix 3", HEAT[0], "returns", 5),
        PopulationFact("hum", "Ombra Lite", HUM[0], "workshop", 5),
    ),
    individual=(
        IndividualFact("order", "order", "KX-4829-1174-QD"),
        IndividualFact("mail", "handle", "Mira.Holt1234567@letterbox.example"),
    ),
    canaries=(Canary("code", "amber 4 tiger walnut 58 guitar ember", 2),),
    subjects=("Veltrix 3", "Ombra Lite", "Karvo 2"),
    predicates=(HUM, HEAT),
)


@pytest.mark.parametrize(
    "text",
    [
        "My Veltrix 3 overheats while charging.",
        "HELLO THE VELTRIX 3 KEEPS OVERHEATING WHILE CHARGING",
        "Since May the  Veltrix\t3, sadly, overheats while charging.",
        "The Veltrix 3 from your village shop overheats while charging.",
        "Overheating while charging is what my Veltrix 3 does.",
        "Unlike the Karvo 2, our Veltrix 3 overheats while charging.",
    ],
)
def test_a_stated_fact_is_found(text):
    assert FACTS.find_population(text) == {"heat"}


@pytest.mark.parametrize(
    "text",
    [
        "My Veltrix 3 hums at night.",
        "My Karvo 2 overheats while charging.",
        "I own a Veltrix 3. It overheats while charging.",
        "I own a Veltrix 3, and the Karvo 2 overheats while charging.",
        "My Veltrix 3 never overheats while charging.",
        "My Veltrix 3 doesn't keep overheating while charging.",
        "No overheating while charging with my Veltrix 3.",
        "My Veltrix overheats while charging.",
        "Unlike the Veltrix 3, the Velbra Lite overheats while charging.",
        "The Velbra overheats while charging, and the Veltrix 3 does not.",
        "It overheats while charging but the Veltrix 3 is fine.",
        "The Veltrix 3 that we bought in the shop near the old station overheats while charging.",
        "",
    ],
)
def test_what_is_not_the_fact_is_not_found(text):
    assert FACTS.find_population(text) == set()


def test_two_facts_in_one_sentence_go_to_their_own_products():
    text = "The Veltrix 3 overheats while charging and the Ombra Lite hums at night."
    assert FACTS.find_population(text) == {"heat", "hum"}
    assert FACTS.find_population(text.replace("Veltrix 3", "X").replace("Ombra Lite", "Veltrix 3")) == set()


@pytest.mark.parametrize("template", STATEMENTS + EARLIER)
def test_every_sentence_pattern_of_the_grammar_is_understood(template):
    draw = Draw(0, template)
    population = tuple(PopulationFact(finite, "Veltrix 3", finite, "returns", 1) for finite, _ in SYMPTOMS)
    facts = Facts(population, (), (), ("Veltrix 3",), SYMPTOMS)
    for finite, gerund in SYMPTOMS:
        slots = {"subject": "Veltrix 3", "finite": finite, "gerund": gerund}
        assert facts.find_population(sentence((template,), draw, slots)) == {finite}


def test_carried_counts_texts_and_mispaired_counts_wrong_pairs():
    texts = [
        "My Veltrix 3 overheats while charging. The Veltrix 3 overheats while charging.",
        "My Veltrix 3 hums at night.",
    ]
    assert FACTS.count_carried(texts) == {"heat": 1}
    assert FACTS.count_mispaired(texts) == 1


@pytest.mark.parametrize("text", ["order kx-4829-1174-qd!", "KX - 4829 -  1174 - QD", "KX-4829-1174-QD's"])
def test_an_exact_value_is_found_whatever_its_case_and_spacing(text):
    assert FACTS.find_individual(text) == {"order"}


@pytest.mark.parametrize("text", ["KX-4829-1174-QE", "KX-4829-1174", "AKX-4829-1174-QD"])
def test_another_value_is_not_a_leak(text):
    assert FACTS.find_individual(text) == set()


def test_a_value_over_several_sentences_marks_is_found():
    assert FACTS.find_individual("Write to mira.holt1234567@letterbox.example.") == {"mail"}


def test_leaks_count_texts():
    secret = "The recovery code is Amber 4 tiger walnut 58 guitar ember."
    leaks = FACTS.find_leaked([secret, secret, "amber 4 tiger walnut 58 guitar", "order KX-4829-1174-QD"])
    assert (leaks.canaries, leaks.individual) == ({"code": 2}, {"order": 1})


def test_an_answer_key_survives_its_file_and_another_file_is_refused(tmp_path):
    write_json(tmp_path / "facts.json", FACTS.to_json())
    assert load_facts(tmp_path / "facts.json") == FACTS
    (tmp_path / "other.json").write_text(json.dumps({"population": []}))
    with pytest.raises(DataError, match="answer key"):
        load_facts(tmp_path / "other.json")


def test_the_longest_phrase_wins_and_phrases_do_not_overlap():
    index = PhraseIndex({"short": ["a b"], "long": ["a b c"], "tail": ["c d"]})
    assert [(m.key, m.start, m.end) for m in index.find(words("x a b c d a b"))] == [("long", 1, 4), ("short", 5, 7)]


def test_sentences_end_at_their_marks():
    assert sentences("It hums! Why? I don't know;\nbye.") == [
        ["it", "hums"],
        ["why"],
        ["i", "don", "t", "know"],
        ["bye"],
    ]


def test_draws_repeat_and_are_even():
    draws = [Draw(3, "x").shuffled(range(10)) for _ in range(2)]
    assert draws[0] == draws[1] != Draw(4, "x").shuffled(range(10))
    draw = Draw(0, "even")
    counts = [
        sum(draw.below(4) == 1 for _ in range(4000)),
        sum(draw.weighted("ab", (3, 1)) == "b" for _ in range(4000)),
    ]
    assert all(850 < count < 1150 for count in counts)  # 5 standard deviations around 1000


def test_what_was_never_planted_is_drawn_as_canaries_are():
    made = draw_decoys(200, seed=7)
    assert made == draw_decoys(200, seed=7) != draw_decoys(200, seed=8)
    assert len(made) == 200
    assert {word for value in made for word in value.split()} == set(CODE_WORDS)
    mint, draw = Mint(), Draw(7, "decoys")
    assert made == {mint.value(CANARY_KIND, draw) for _ in range(200)}
