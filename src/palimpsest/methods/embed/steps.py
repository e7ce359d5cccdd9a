"""Steps between two votes, from noisy answers to the next slate of embeddings. All of it is post-processing."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.files import atomic_path
from palimpsest.methods.embed.declaration import Eda, EmbedSettings, GaussianHistogram
from palimpsest.methods.shared.means import Candidates
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.privacy.means import Encode, unit_rows
from palimpsest.privacy.votes import Counts, Round, Slate

_TURNS = 100  # of Lloyd's algorithm, at most; so few points settle far earlier
_CENTRES, _OFFSPRING, _TEXTS = 1, 2, 3  # draws that have nothing to do with each other


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians with independent coordinates.

    Attributes:
        weights: the probability of each Gaussian, shape (m,), sum 1.
        means: the mean of each Gaussian, shape (m, d).
        spreads: standard deviation of each coordinate, shape (m, d).
    """

    weights: np.ndarray
    means: np.ndarray
    spreads: np.ndarray

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """New points, each brought to length 1: float32 (count, d)."""
        own = rng.choice(len(self.weights), size=count, p=self.weights)
        points = self.means[own] + self.spreads[own] * rng.standard_normal((count, self.means.shape[1]))
        return unit_rows(points).astype(np.float32)


def fit_mixture(
    parents: np.ndarray, votes: np.ndarray, settings: Eda, spread: np.ndarray, rng: np.random.Generator
) -> Mixture:
    """Fit a distribution to parents (Zhao, Song, Zhou 2024, Algorithm 2), or a mixture where the settings ask for one.

    Each Gaussian is fitted to the parents nearest to its centre (`group_parents`) and weighs as much as their votes.

    Args:
        parents: n >= 1 embeddings, the best first, shape (n, d).
        votes: the votes of each parent, >= 0, shape (n,); where all are 0, each weighs the same.
        spread: public standard deviation of each coordinate, shape (d,), for a Gaussian whose parents do not differ.
        rng: draws the first centres.
    """
    parents = np.asarray(parents, dtype=np.float64)
    groups = group_parents(parents, settings.components, rng)
    gaussians = [gaussian(parents[own], settings, spread) for own in groups]
    weights = np.array([votes[own].sum() for own in groups], dtype=np.float64)
    if not weights.sum() > 0.0:
        weights = np.array([len(own) for own in groups], dtype=np.float64)
    means, spreads = zip(*gaussians, strict=True)
    return Mixture(weights / weights.sum(), np.stack(means), np.stack(spreads))


def gaussian(parents: np.ndarray, settings: Eda, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one Gaussian, (d,) each.

    mu' = (1 - a) mu + a (e_best + e_second - e_worst) and sigma' = (1 - a) sigma + a sigma_R, where mu and sigma are
    the mean and the standard deviation of all parents and sigma_R is that of the R best. The paper's sums stop one
    short of the last parent; here all count. A lone parent is best, second and worst. Where parents do not differ
    sigma' would be 0 and every offspring the same: `spread` then takes its place.

    >>> eda = Eda(smoothing=0.5, best=2, components=1)
    >>> mean, deviation = gaussian(np.array([[4.0], [2.0], [0.0]]), eda, np.ones(1))
    >>> mean.round(3).tolist(), deviation.round(3).tolist()
    ([4.0], [1.316])
    """
    mean, share = parents.mean(axis=0), settings.smoothing
    moved = (1.0 - share) * mean + share * (parents[0] + parents[:2][-1] - parents[-1])
    deviation = (1.0 - share) * parents.std(axis=0) + share * parents[: settings.best].std(axis=0)
    return moved, deviation if deviation.any() else np.asarray(spread, dtype=np.float64)


def group_parents(parents: np.ndarray, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """At most `count` groups of parents near each other: indices in ascending order, the group of the best first.

    Lloyd's algorithm from centres that are far apart (k-means++: Arthur and Vassilvitskii 2007).
    """
    if count == 1:
        return [np.arange(len(parents))]
    centres, owners = _draw_centres(parents, count, rng), np.full(len(parents), -1)
    for _ in range(_TURNS):
        nearest = _squares(parents, centres).argmin(axis=1)
        if np.array_equal(nearest, owners):
            break
        owners = nearest
        centres = np.stack([parents[owners == owner].mean(axis=0) for owner in np.unique(owners)])
    return [np.flatnonzero(owners == owner) for owner in dict.fromkeys(owners.tolist())]


def _draw_centres(parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw initial centres: the best parent, then parents in proportion to their squared distance from those before."""
    chosen = [0]
    far = _squares(parents, parents[:1])[:, 0]
    while len(chosen) < count and far.sum() > 0.0:
        chosen.append(int(rng.choice(len(parents), p=far / far.sum())))
        far = np.minimum(far, _squares(parents, parents[chosen[-1:]])[:, 0])
    return parents[chosen]


def _squares(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distance of each point from each centre, (points, centres); 0 from itself, exactly."""
    return np.stack([np.square(points - centre).sum(axis=1) for centre in centres], axis=1)


@dataclass(frozen=True)
class VectorWriter:
    """Turns embeddings into texts, and checks which of them are readable.

    Attributes:
        decode: a public decoder, a function of its arguments: a stopped run writes the same again.
        encode: the public encoder that the decoder was trained for.
        losses: mean token loss of each text in nats by the public language model.
        limit: the largest loss of a readable text; None for no limit.
    """

    decode: Decoder
    encode: Encode
    losses: Callable[[Sequence[str]], np.ndarray]
    limit: float | None

    def find_readable(self, texts: Sequence[str]) -> np.ndarray:
        """Return which texts are readable, bool (n,): not blank, with a loss that is a number up to the limit."""
        written = np.array([bool(text.strip()) for text in texts], dtype=np.bool_)
        if self.limit is None or not written.any():
            return written
        asked = [text for text in texts if text.strip()]
        written[written] = np.asarray(self.losses(asked)) <= self.limit
        return written


@dataclass(frozen=True, eq=False)
class Generation:
    """One label between two votes.

    Attributes:
        population: embeddings, float32 (n, d). The first of them have a text already.
        texts: the texts of these first ones.
        embeddings: of these texts, float32 (texts, d): a decoded text is near its vector, not on it.
        votes: the votes of each of these texts when it was selected, (texts,); 1 where it was never voted for.
        parents: how many of them, counted from the first, have offspring.
        dead: how many of them, counted from the first, are not voted for.
    """

    population: np.ndarray
    texts: tuple[str, ...]
    embeddings: np.ndarray
    votes: np.ndarray
    parents: int
    dead: int = 0

    @property
    def candidates(self) -> np.ndarray:
        """The embeddings that are voted for, float32 (n - dead, d)."""
        return self.population[self.dead :]


@dataclass(frozen=True, eq=False)
class Selected:
    """The selection of one round for one label.

    Attributes:
        places: indices among the candidates that were voted for, the best first, int64 (p,).
        texts: the decoded texts.
        readable: which may have offspring, bool (p,).
    """

    places: np.ndarray
    texts: tuple[str, ...]
    readable: np.ndarray


@dataclass(frozen=True, eq=False)
class Turn:
    """The populations before a vote, and the selection of the previous vote.

    Attributes:
        generations: label -> its population.
        selected: label -> its selection; empty before the first vote.
    """

    generations: Mapping[str, Generation]
    selected: Mapping[str, Selected]


class EmbedSteps:
    """Makes the slate of each round.

    A label's next population is its readable parents and the requested number of their offspring. The paper drops the
    parents, and so does `keep_parents: false`. Otherwise they are candidates again. This costs nothing, as the noise
    does not depend on the number of candidates, and a good candidate is not lost to one unlucky generation. A label
    without a readable parent, or without a selected one, votes for the same candidates again, where the paper ends the
    whole run.

    Populations are a function of public inputs, noisy answers and the seed.

    Attributes:
        start: label -> its public texts, the best first, with embeddings of length 1.
        folder: where populations are kept, so that a stopped run continues with the same ones; None keeps nothing.
    """

    def __init__(
        self,
        settings: EmbedSettings,
        start: Mapping[str, Candidates],
        writer: VectorWriter,
        seed: int,
        folder: Path | None,
    ) -> None:
        self.settings, self.start, self.writer = settings, start, writer
        self.seed, self.folder = seed, folder
        self._made: dict[str, Turn] = {}
        self._origin = _digest(settings, start, writer.limit, seed)

    def first(self) -> Slate:
        """The first slate: public texts."""
        return self.propose([])

    def propose(self, done: Sequence[Round]) -> Slate:
        """The slate after these rounds."""
        generations = self.turn([one.counts for one in done]).generations
        return Slate({}, {label: one.candidates for label, one in generations.items()})

    def turn(self, answers: Sequence[Counts]) -> Turn:
        """The populations after these answers."""
        name = f"population-{len(answers)}-{self._key(answers)}"
        if name not in self._made:
            self._made[name] = self._load_or_compute(name, answers)
        return self._made[name]

    def mixture(self, label: str, one: Generation) -> Mixture:
        """Fit the distribution of a label's parents."""
        vectors, spread = one.population[: one.parents], self.start[label].embeddings.std(axis=0)
        rng = np.random.default_rng((self.seed, _CENTRES, self._place(label)))
        return fit_mixture(vectors, one.votes[: one.parents], self.settings.eda, spread, rng)

    def _load_or_compute(self, name: str, answers: Sequence[Counts]) -> Turn:
        path = None if self.folder is None else self.folder / f"{name}.npz"
        if path is not None and path.is_file():
            return _read(path, tuple(self.start))
        made = self._next_turn(self.turn(answers[:-1]), answers[-1], len(answers)) if answers else self._first_turn()
        if path is not None:
            _write(path, made)
        return made

    def _first_turn(self) -> Turn:
        fertile, generations = self.settings.parents, {}
        for label, own in self.start.items():
            votes = np.ones(len(own.texts))
            generations[label] = Generation(own.embeddings, tuple(own.texts), own.embeddings, votes, fertile)
        return Turn(generations, {})

    def _next_turn(self, before: Turn, answer: Counts, turn: int) -> Turn:
        chosen = {label: self._select(answer[label], one.dead) for label, one in before.generations.items()}
        written = self._write_selection(
            before.generations, {label: places for label, (places, _) in chosen.items()}, turn
        )
        generations, selected = {}, {}
        for label, one in before.generations.items():
            (places, votes), (texts, embeddings) = chosen[label], written[label]
            passed = self.writer.find_readable(texts)
            selected[label] = Selected(places - one.dead, texts, passed)
            if passed.any():
                kept = tuple(compress(texts, passed))
                vectors, near = one.population[places[passed]], embeddings[passed]
                one = self._grow(label, Generation(vectors, kept, near, votes[passed], len(kept)), turn)
            generations[label] = one
        return Turn(generations, selected)

    def _select(self, answer: Sequence[float], dead: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of a round's selection in a label's population, the best first, and their weights, >= 0."""
        if not isinstance(self.settings.selection, GaussianHistogram):
            return np.asarray(answer, dtype=np.int64) + dead, np.ones(len(answer))
        noisy = np.asarray(answer, dtype=np.float64)
        places = np.argsort(-noisy, kind="stable")[: self.settings.parents]
        return places + dead, np.maximum(noisy[places], 0.0)

    def _write_selection(
        self, generations: Mapping[str, Generation], chosen: Mapping[str, np.ndarray], turn: int
    ) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Return the texts of the selection and their embeddings; missing texts are decoded, all labels together."""
        named = [(generations[label], places) for label, places in chosen.items()]
        unknown = [one.population[places[places >= len(one.texts)]] for one, places in named]
        fresh = zip(*self.decode(np.concatenate(unknown), turn), strict=True)
        written = {}
        for label, places in chosen.items():
            one = generations[label]
            both = [(one.texts[at], one.embeddings[at]) if at < len(one.texts) else next(fresh) for at in places]
            embeddings = np.array([own for _, own in both], dtype=np.float32)
            written[label] = tuple(text for text, _ in both), embeddings.reshape(len(both), one.population.shape[1])
        return written

    def decode(self, vectors: np.ndarray, *draw: int) -> tuple[list[str], np.ndarray]:
        """Decode vectors of any labels; return the texts and their embeddings, float32 (n, d)."""
        if not len(vectors):
            return [], vectors
        seed = int(np.random.SeedSequence((self.seed, _TEXTS, *draw)).generate_state(1)[0])
        made = self.writer.decode.decode(vectors, self.settings.decode, self.writer.encode, seed)
        return list(made.texts), np.asarray(made.embeddings, dtype=np.float32)

    def draw_offspring(self, label: str, mixture: Mixture, count: int, *draw: int) -> np.ndarray:
        """Offspring of a label: float32 (count, d)."""
        return mixture.draw(count, np.random.default_rng((self.seed, _OFFSPRING, self._place(label), *draw)))

    def _grow(self, label: str, parents: Generation, turn: int) -> Generation:
        """Return the parents, dead or not, and their offspring."""
        offspring = self.draw_offspring(label, self.mixture(label, parents), self.settings.offspring, turn)
        dead = 0 if self.settings.keep_parents else parents.parents
        return replace(parents, population=np.concatenate([parents.population, offspring]), dead=dead)

    def _place(self, label: str) -> int:
        return list(self.start).index(label)

    def _key(self, answers: Sequence[Counts]) -> str:
        return hashlib.sha256((self._origin + json.dumps(answers)).encode()).hexdigest()[:16]


def _digest(settings: EmbedSettings, start: Mapping[str, Candidates], limit: float | None, seed: int) -> str:
    rounded = None if limit is None else f"{limit:.6g}"  # the last bits of a loss hang on the machine
    digest = hashlib.sha256(f"{settings.model_dump_json()} {rounded} {seed}".encode())
    for label, own in start.items():
        digest.update(json.dumps([label, *own.texts]).encode() + own.embeddings.tobytes())
    return digest.hexdigest()


def _write(path: Path, turn: Turn) -> None:
    """Write the file atomically, readable only by its owner. All arrays are numeric; texts are stored as JSON."""
    arrays: dict[str, np.ndarray] = {}
    for place, (label, one) in enumerate(turn.generations.items()):
        arrays |= {f"population_{place}": one.population, f"embeddings_{place}": one.embeddings}
        arrays |= {f"votes_{place}": one.votes}
        arrays |= {f"parents_{place}": np.array(one.parents), f"dead_{place}": np.array(one.dead)}
        arrays[f"texts_{place}"] = _pack(one.texts)
        if label in turn.selected:
            own = turn.selected[label]
            arrays |= {f"places_{place}": own.places, f"readable_{place}": own.readable}
            arrays[f"written_{place}"] = _pack(own.texts)
    with atomic_path(path) as draft, draft.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _read(path: Path, labels: Sequence[str]) -> Turn:
    generations, selected = {}, {}
    with np.load(path, allow_pickle=False) as file:
        for place, label in enumerate(labels):
            one: dict[str, Any] = {name: file[f"{name}_{place}"] for name in ("population", "embeddings", "votes")}
            one |= {name: int(file[f"{name}_{place}"]) for name in ("parents", "dead")}
            generations[label] = Generation(texts=_unpack(file[f"texts_{place}"]), **one)
            if f"places_{place}" in file:
                chosen, passed = file[f"places_{place}"], file[f"readable_{place}"]
                selected[label] = Selected(chosen, _unpack(file[f"written_{place}"]), passed)
    return Turn(generations, selected)


def _pack(texts: Sequence[str]) -> np.ndarray:
    return np.frombuffer(json.dumps(list(texts)).encode(), dtype=np.uint8)


def _unpack(array: np.ndarray) -> tuple[str, ...]:
    return tuple(json.loads(array.tobytes()))
