"""The file of the embeddings that each round of `embed` voted for and selected, which its audit reads."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palimpsest.errors import DataError
from palimpsest.files import atomic_path

_DAMAGED = (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile)
_NAMED = re.compile(r"population_(\d+)_\d+")


@dataclass(frozen=True, eq=False)
class EvolvedRound:
    """One round; the only label is "" where the task has none.

    Attributes:
        population: label -> the embeddings that were voted for, (n, d), stored as float16.
        parents: label -> which of them the noisy votes selected, int64 (p,), the best first; p may be 0.
        readable: label -> which parents passed the readability check, bool (p,); all where there is none.
    """

    population: Mapping[str, np.ndarray]
    parents: Mapping[str, np.ndarray]
    readable: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        for label, vectors in self.population.items():
            chosen, passed = self.parents[label], self.readable[label]
            inside = not len(chosen) or 0 <= chosen.min() <= chosen.max() < len(vectors)
            if vectors.ndim != 2 or chosen.ndim != 1 or passed.shape != chosen.shape or not inside:
                raise ValueError(
                    f"got vectors of shape {vectors.shape}, {chosen.shape} parents, not all of them among the vectors, "
                    f"or {passed.shape} checks"
                )


def write_evolved(path: Path | str, rounds: Sequence[EvolvedRound]) -> None:
    """Write the rounds, all of the same labels, whole or not at all.

    The arrays are `labels` and, for round t from 1 and the l-th label from 0, `population_{t}_{l}` (float16),
    `parents_{t}_{l}` (int64) and `readable_{t}_{l}` (bool).
    """
    labels = list(rounds[0].population) if rounds else []
    arrays: dict[str, np.ndarray] = {"labels": np.array(labels, dtype=np.str_)}
    for number, one in enumerate(rounds, 1):
        if set(one.population) != set(labels):
            raise ValueError(f"all rounds have the same labels; round {number} has others")
        for place, label in enumerate(labels):
            arrays[f"population_{number}_{place}"] = one.population[label].astype(np.float16)
            arrays[f"parents_{number}_{place}"] = one.parents[label].astype(np.int64)
            arrays[f"readable_{number}_{place}"] = one.readable[label].astype(np.bool_)
    with atomic_path(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def read_evolved(path: Path | str) -> list[EvolvedRound]:
    """Read what `write_evolved` wrote, round by round.

    Raises:
        DataError: the file is missing, damaged or of another kind.
    """
    path = Path(path)
    with suppress(*_DAMAGED), np.load(path, allow_pickle=False) as file:
        labels = [str(label) for label in file["labels"]]
        numbers = sorted({int(match[1]) for name in file.files if (match := _NAMED.fullmatch(name))})
        return [_round(file, number, labels) for number in numbers]
    raise DataError(
        f"{path.name!r} is missing, or does not hold the rounds of an embedding evolution.",
        "Run the stage that writes it again.",
    )


def _round(file: Mapping[str, np.ndarray], number: int, labels: Sequence[str]) -> EvolvedRound:
    def of(kind: str) -> dict[str, np.ndarray]:
        return {label: file[f"{kind}_{number}_{place}"] for place, label in enumerate(labels)}

    return EvolvedRound(of("population"), of("parents"), of("readable"))
