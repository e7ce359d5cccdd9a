"""Measures of a text beside its sentence, against values worked out by hand; and sentences."""

import math

import pytest

from palimpsest.models.decoder.measure import bleu, token_f1
from palimpsest.models.decoder.training import sentences_of, split_sentences


@pytest.mark.parametrize(
    ("text", "truth", "wanted"),
    [
        ("A cat sat.", "a cat sat .", 1.0),
        ("the the the", "the cat", 2 / 5),  # one in common of three and two
        ("a b c d", "c d e", 4 / 7),
        ("red", "blue", 0.0),
        ("", "blue", 0.0),
        ("", "", 1.0),
    ],
)
def test_token_f1(text: str, truth: str, wanted: float) -> None:
    assert token_f1(text, truth) == pytest.approx(wanted)
    assert token_f1(truth, text) == pytest.approx(wanted)


def test_bleu_of_the_same_texts_is_one_and_of_unrelated_ones_zero() -> None:
    texts = ["The lamp hums in the hall.", "A radio breaks!"]
    assert bleu(texts, texts) == pytest.approx(1.0)
    assert bleu(["one two"], ["three four"]) == 0.0
    assert bleu([""], ["three four"]) == 0.0


def test_bleu_by_hand() -> None:
    """Papineni et al.'s clipping: seven `the` against two. Two texts are counted together."""
    assert bleu(["the the the the the the the"], ["the cat is on the mat"]) == pytest.approx(
        math.exp(sum(map(math.log, (2 / 7, 1 / 7, 1 / 6, 1 / 5))) / 4)
    )
    texts, truths = ["a b c d x", "e f"], ["a b c d y", "e f g h"]
    precisions = (6 / 7, (4 + 1) / (5 + 1), (2 + 1) / (3 + 1), (1 + 1) / (2 + 1))
    brevity = math.exp(1 - 9 / 7)  # nine words wanted, seven written
    assert bleu(texts, truths) == pytest.approx(brevity * math.prod(precisions) ** 0.25)


def test_a_longer_text_pays_no_brevity() -> None:
    longer, shorter = bleu(["a b c d e f g h"], ["a b c d"]), bleu(["a b c d"], ["a b c d e f g h"])
    assert longer == pytest.approx((4 / 8 * (3 + 1) / (7 + 1) * (2 + 1) / (6 + 1) * (1 + 1) / (5 + 1)) ** 0.25)
    assert shorter == pytest.approx(math.exp(1 - 2))


def test_sentences_are_cut_cleaned_and_distinct() -> None:
    texts = [
        'He came in late.<br /><br />"It was a dark night," she said! Then   he\nleft the house? No. i did.',
        "HE came in late. Mr. Bean walked home alone.",
    ]
    assert sentences_of(texts) == [
        "He came in late.",
        '"It was a dark night," she said!',
        "Then he left the house?",
        "Bean walked home alone.",
    ]
    assert sentences_of([]) == []


def test_sentences_that_are_too_short_or_too_long_are_left_out() -> None:
    assert split_sentences("One two three.") == []
    assert split_sentences("One two three four.") == ["One two three four."]
    assert split_sentences("Word " * 27 + "end.") == ["Word " * 27 + "end."]
    assert split_sentences("Word " * 28 + "end.") == []
    assert split_sentences("Averyveryverylongword " * 10 + "end.") == []
