"""Steps between two votes: from public texts and noisy counts to the next slate. All of it is post-processing."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from palimpsest.errors import BackendError
from palimpsest.files import read_json, write_json
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.declaration import EvolveSettings
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.methods.shared.rounds import group_by_label, select_candidates
from palimpsest.privacy.means import Encode
from palimpsest.privacy.votes import Round, Slate
from palimpsest.records.record import Record

_FEWEST = 0.5  # share of the variations asked for that must come: below it the author is not working
_LOOK_AHEAD = 1_000_000  # turns that no round has


class EvolveSteps:
    """Makes the slate of each round.

    Attributes:
        counts: label -> texts that each round selects.
        sums: noisy class sums that steer; None where votes alone decide.
        folder: where the first population is kept, which costs as much as a round; None keeps nothing.
    """

    def __init__(
        self,
        settings: EvolveSettings,
        counts: Mapping[str, int],
        author: Author,
        encode: Encode,
        sums: ClassSums | None,
        seed: int,
        folder: Path | None,
    ) -> None:
        self.settings, self.counts, self.author, self.encode = settings, counts, author, encode
        self.sums, self.seed, self.folder = sums, seed, folder
        self._pool = settings.class_means.pool if settings.class_means else 1

    def first(self) -> Slate:
        """The first slate: new texts, and variations of them.

        Raises:
            BackendError: fewer texts could be written for a label than each round selects, or fewer than half of the
                variations.
        """
        path = None if self.folder is None else self.folder / f"first-{self._digest()}.json"
        if path is not None and path.is_file():
            return self._slate(read_json(path), 0)
        first = self.settings.class_means.first if self.settings.class_means else 1
        written = self.author.random({label: first * count for label, count in self.counts.items()})
        started = self._choose_likeliest(written, self.counts)
        self._require(started)
        texts = group_by_label(self._grow(started, 0), tuple(self.counts))
        if path is not None:
            write_json(path, texts)
        return self._slate(texts, 0)

    def propose(self, done: Sequence[Round]) -> Slate:
        """The slate after these rounds: the last round's selection and variations of it.

        Raises:
            BackendError: fewer than half of the variations could be written.
        """
        turn = len(done)
        return self._slate(group_by_label(self._grow(self.select(done, turn - 1), turn), tuple(self.counts)), turn)

    def select(self, done: Sequence[Round], turn: int) -> list[Record]:
        """Return the selection of round `turn`."""
        return select_candidates(done[turn], self.counts, self.settings.votes, np.random.default_rng((self.seed, turn)))

    def _grow(self, records: Sequence[Record], turn: int) -> list[Record]:
        """The records, and up to L - 1 variations for each of them."""
        times = self.settings.expand - 1
        if not times:
            return list(records)
        wanted = self._pool * times * len(records)
        written = self._variations(records, self._pool * times, turn)
        if len(written) < _FEWEST * wanted:
            raise BackendError(
                f"The author wrote fewer than half of the variations before round {turn + 1}.",
                "Mend its prompts, its model or the connection and run again: finished rounds and answers are kept.",
            )
        return [
            *records,
            *self._choose_likeliest(written, {label: times * count for label, count in self.counts.items()}),
        ]

    def _variations(self, records: Sequence[Record], times: int, turn: int) -> list[Record]:
        """Variations of each record; one that was drawn several times has several times as many."""
        variations: list[Record] = []
        drawn = Counter(records)
        for often in sorted(set(drawn.values())):
            same = [record for record, count in drawn.items() if count == often]
            variations += [record for own in self.author.vary(same, times * often, turn) for record in own]
        return variations

    def _choose_likeliest(self, written: Sequence[Record], counts: Mapping[str, int]) -> list[Record]:
        """At most `counts` of the written texts: those most like their label by the class sums, or the first."""
        if self.sums is not None and self.settings.class_means is not None:
            texts = list(dict.fromkeys(record.text for record in written))
            candidates = Candidates(texts, np.asarray(self.encode(texts)))
            return choose(candidates, self.sums, counts, self.settings.class_means.domain)
        own = group_by_label(written, tuple(counts))
        return [Record(text, label or None) for label, count in counts.items() for text in own[label][:count]]

    def _slate(self, texts: Mapping[str, Sequence[str]], turn: int) -> Slate:
        return Slate(texts, {label: self._vectors(label, own, turn) for label, own in texts.items()})

    def _vectors(self, label: str, texts: Sequence[str], turn: int) -> np.ndarray:
        """Return the vector of each candidate: its embedding, or the mean of it and of those of its K variations."""
        own = np.asarray(self.encode(texts))
        if not self.settings.look_ahead:
            return own
        records = [Record(text, label or None) for text in texts]
        varied = self.author.vary(records, self.settings.look_ahead, _LOOK_AHEAD + turn)
        owner = np.repeat(np.arange(len(texts)), [len(variations) for variations in varied])
        others = [record.text for variations in varied for record in variations]
        sums = own.astype(np.float64)
        if others:
            np.add.at(sums, owner, np.asarray(self.encode(others)))
        return sums / (1 + np.bincount(owner, minlength=len(texts)))[:, None]

    def _require(self, records: Sequence[Record]) -> None:
        texts = group_by_label(records, tuple(self.counts))
        for label, count in self.counts.items():
            if len(texts[label]) < count:
                raise BackendError(
                    f"The first population has fewer texts for label {label!r} than each round selects.",
                    "Ask for fewer rows, give more public text, or mend the author's prompts, and run again: answers "
                    "are kept.",
                )

    def _digest(self) -> str:
        sums = b"" if self.sums is None else self.sums.sums.tobytes()
        return hashlib.sha256(repr(dict(self.counts)).encode() + sums).hexdigest()[:16]
