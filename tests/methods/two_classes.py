"""Invented texts of two classes."""

import itertools

from palimpsest.records.record import Record

WORDS = {"praise": ("great", "lovely", "splendid", "fine"), "a complaint": ("awful", "nasty", "broken", "poor")}


def two_class_records() -> list[Record]:
    """96 short texts whose adjectives tell the label."""
    things = ("lamp", "radio", "kettle")
    return [
        Record(f"The {thing} is {first} and {second}.", label)
        for label, words in WORDS.items()
        for thing, first, second in itertools.product(things, words, words)
    ]
