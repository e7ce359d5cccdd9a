"""The record that leaves a generator, and public rows: text with a label or none."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One text and its label; `label` is None where the task has none or the text is unlabelled."""

    text: str
    label: str | None = None
