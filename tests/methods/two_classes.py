"""Invented texts of two classes."""

import itertools

from palimpsest.records.record import Record

WORDS = {"praise": ("great", "lovely", "splendid", "fine"), "a complaint": ("awful", "nasty", "broken", "poor")}
NAMES = tuple(WORDS)
FOREIGN = ["Stock prices fell.", "It rains on the hills.", "A great and lovely song plays."]
PUBLIC = FOREIGN + [
    f"The fridge is {first}, the oven is {second}."
    for words in WORDS.values()
    for first, second in itertools.product(words, words)
]
# Of each class a short row, and one without words and a long one.
UNEVEN = [
    Record("The lamp is great and fine.", "praise"),
    Record("The radio is awful.", "a complaint"),
    Record("", "praise"),
    Record("The kettle is poor and nasty and broken and awful and poor.", "a complaint"),
]


def label_of(text: str) -> str:
    return next(label for label, words in WORDS.items() if any(word in text for word in words))


def two_class_records() -> list[Record]:
    """96 short texts whose adjectives tell the label."""
    things = ("lamp", "radio", "kettle")
    return [
        Record(f"The {thing} is {first} and {second}.", label)
        for label, words in WORDS.items()
        for thing, first, second in itertools.product(things, words, words)
    ]
