"""Rows of the private zone. Their text is kept out of `repr`, so that no log or traceback can show it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row of the private input.

    Attributes:
        text: the text, at most `max_length` characters.
        label: the label, or None where the task has none.
        unit: the person the row belongs to, None where the row names none or the unit of privacy is one record.
        cut: True where the text was longer than `max_length`.
        fields: the cells of its fields (`records.fields.encode_cells`); empty where the data set has none.
    """

    text: str = field(repr=False)
    label: str | None = field(default=None, repr=False)
    unit: str | None = field(default=None, repr=False)
    cut: bool = False
    fields: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One row of data/private/*.parquet.

    Attributes:
        guess: True where the unit (the record, or the person behind it) is in the audit subset and an attack may guess
            about it.
        person: the person's keyed id, 64 hexadecimal digits (`records.preprocess.person_id`); None where the unit of
            privacy is one record.
        fields: the cells of its fields (`records.fields.encode_cells`); empty where the data set has none.
    """

    text: str = field(repr=False)
    label: str | None = field(default=None, repr=False)
    guess: bool = False
    person: str | None = field(default=None, repr=False)
    fields: str = field(default="", repr=False)
