"""Decodes the last populations into texts. Free: nothing here reads a private row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.methods.embed.steps import EmbedSteps
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.privacy.votes import Counts
from palimpsest.records.record import Record

_WAVES = 10  # times that what could not be read is drawn anew


@dataclass(frozen=True)
class Result:
    """The texts decoded after the last vote.

    Attributes:
        records: the synthetic rows, label by label.
        rejected: decoded texts that were not readable, in their order.
        written: number of decoded texts, readable or not; those of parents were decoded earlier and are not counted.
    """

    records: tuple[Record, ...]
    rejected: tuple[Record, ...]
    written: int


def result_of(
    steps: EmbedSteps, answers: Sequence[Counts], counts: Mapping[str, int], sums: ClassSums | None
) -> Result:
    """At most `counts` texts of each label: those of its parents, the best first, then those of fresh offspring.

    Equal texts of a label count once. With class sums, `pool` times as many are written, and the likeliest are kept
    (`choose`). Fewer come where even after some waves too few can be read, or too few are in a label's domain.
    """
    wanted = steps.settings.class_means
    pool = wanted.pool if wanted is not None else 1
    writing = _Writing(steps, answers, {label: pool * count for label, count in counts.items()})
    for wave in range(_WAVES):
        if not writing.wave(wave):
            break
    records = _choose_records(writing.pools, counts, sums, 1.0 if wanted is None else wanted.domain)
    return Result(tuple(records), tuple(writing.rejected), writing.written)


class _Writing:
    """Fills a pool of different texts for each label: label -> text -> its embedding, (d,)."""

    def __init__(self, steps: EmbedSteps, answers: Sequence[Counts], wanted: Mapping[str, int]) -> None:
        generations = steps.turn(answers).generations
        self.pools: dict[str, dict[str, np.ndarray]] = {label: {} for label in wanted}
        self.rejected: list[Record] = []
        self.written = 0
        self._steps, self._wanted, self._turn = steps, wanted, len(answers)
        self._mixtures = {label: steps.mixture(label, one) for label, one in generations.items()}
        for label, one in generations.items():
            self._add(label, one.texts[: one.parents], one.embeddings[: one.parents])

    def wave(self, number: int) -> bool:
        """Write as many fresh offspring as are missing; return False where none is missing."""
        missing = {label: count - len(self.pools[label]) for label, count in self._wanted.items()}
        if not any(missing.values()):
            return False
        steps, turn = self._steps, self._turn
        drawn = [
            steps.draw_offspring(label, self._mixtures[label], missing[label], turn, number + 1) for label in missing
        ]
        texts, embeddings = steps.decode(np.concatenate(drawn), turn, number + 1)
        self.written += len(texts)
        start = 0
        for label, count in missing.items():
            self._add(label, texts[start : start + count], embeddings[start : start + count])
            start += count
        return True

    def _add(self, label: str, texts: Sequence[str], embeddings: np.ndarray) -> None:
        pool = self.pools[label]
        for text, own, readable in zip(texts, embeddings, self._steps.writer.find_readable(texts), strict=True):
            if not readable:
                self.rejected.append(Record(text, label or None))
            elif len(pool) < self._wanted[label]:
                pool.setdefault(text, own)


def _choose_records(
    pools: Mapping[str, Mapping[str, np.ndarray]], counts: Mapping[str, int], sums: ClassSums | None, domain: float
) -> list[Record]:
    if sums is None:
        return [Record(text, label or None) for label, pool in pools.items() for text in pool]
    embeddings = {text: own for pool in pools.values() for text, own in pool.items()}
    if not embeddings:
        return []
    return choose(Candidates(list(embeddings), np.stack(list(embeddings.values()))), sums, counts, domain)
