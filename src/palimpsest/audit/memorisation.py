"""Counts parts of single private records that the synthetic texts repeat: near-duplicates, personal data, secrets.

Texts of one kind resemble each other, and a helpline's number is in many of them: finds among the members mean nothing
by themselves. Every count is reported beside the same count for a control that no generator saw, the holdout or secrets
that were never planted, with an interval of the difference. Verbatim spans are in `ngrams`.

Private rows are counted by their units, records or persons: one coin dealt all rows of a person to one side.

Counts are exact: pairs of similar texts come from a prefix filter, which misses none, and not from hashes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from typing import Annotated, ClassVar

from scipy.stats import hypergeom

from palimpsest import validate
from palimpsest.audit.personal import KINDS, finds_planted, personal_values
from palimpsest.audit.statistics import Estimate, Rate
from palimpsest.audit.units import Released, Units, cut, plant
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.duplicates import Shingle, jaccard, shingles_of
from palimpsest.records.segment import wording

Pair = tuple[int, int]
_Value = tuple[str, str]  # kind and value


@dataclass(frozen=True)
class LikenessRules:
    """The thresholds above which texts or secrets count as alike."""

    similarity: float  # smallest Jaccard similarity of two near-duplicates, in (0, 1]
    shingle: int  # words per shingle; a shorter text is one shingle
    closeness: float  # share of a secret's letters, digits and spaces that a near match gets right, in (0, 1]

    def __post_init__(self) -> None:
        validate.require_positive(similarity=self.similarity, shingle=self.shingle, closeness=self.closeness)
        validate.require_in_range(0, 1, similarity=self.similarity, closeness=self.closeness)


@dataclass(frozen=True)
class Contrast(Plain):
    """The rate of hits among the exposed, beside that of a control of the same kind."""

    exposed: Rate  # members, or planted secrets
    control: Rate  # the holdout, or secrets that were never planted
    excess: Estimate  # exposed rate - control rate, with Newcombe's interval
    # probability that a fair dealing of the two sides gives at least so many hits among the exposed (one-sided).
    p: Annotated[float, At("excess", "p")]


@dataclass(frozen=True)
class Repeats(Plain):
    """Contents that synthetic texts share with private records, counted from both ends."""

    train: Rate  # of the synthetic texts, or of the distinct values in them, those that a member has too
    holdout: Rate  # the same for the holdout; one may be in both
    public: Rate  # the same for the public texts
    # train rate - holdout rate, with Newcombe's interval for pairs. Its unit is the synthetic text: where many repeat
    # one record it is surer than it should be, and `records` is the test.
    excess: Estimate
    records: Contrast  # of the units of members, and of the holdout, those of which a record is repeated
    planted: Rate  # of contents planted in such records or copied from them, those that are found

    @property
    def judges(self) -> bool:
        """Whether most of what was planted is found, so that finding nothing says something."""
        return 2 * self.planted.count > self.planted.n


@dataclass(frozen=True)
class Extraction(Plain):
    """Secrets in the synthetic texts: exact and near matches."""

    exact: Contrast
    near: Contrast


@dataclass(frozen=True)
class Secrets:
    """Planted secrets, and decoys: values drawn like the secrets, but never planted."""

    planted: tuple[str, ...]
    decoys: tuple[str, ...]


@dataclass(frozen=True)
class MemorisationAudit(PlainFile):
    """Private zone: counts, without any value."""

    keys: ClassVar = ("unit", "near_duplicates", "personal", "secrets")
    near_duplicates: Repeats
    personal: dict[str, Repeats]  # kind -> distinct personal values
    secrets: Extraction | None  # planted secrets that came out; None where the data set declares none
    unit: str  # what `records` counts: "record" or "person"


def memorisation(released: Released, secrets: Secrets | None, settings: LikenessRules, seed: int) -> MemorisationAudit:
    """Count repetitions of members in the synthetic texts and, as the control, of records that nothing was fitted on.

    Each p value is exact, whatever else was trained on: if the synthetic texts do not depend on the coins, those of the
    repeated units are fair, and their number among the members is hypergeometric given the sizes of both sides.

    `secrets` are those that the data set declares as planted, or None; `seed` draws the records that are copied to try
    whether copies, and values put into such texts, would be found.
    """
    copies = plant(released, seed, cut)
    near, tried = near_duplicates_of(copies, settings).records.exposed, [record.text for record in copies.members]
    found = {kind: sum(finds_planted(kind, text) for text in tried) for kind in KINDS}
    return MemorisationAudit(
        near_duplicates=replace(near_duplicates_of(released, settings), planted=near),
        personal={
            kind: replace(one, planted=Rate.wilson(found[kind], len(tried)))
            for kind, one in personal_data(released).items()
        },
        secrets=extraction(secrets, released.texts, settings) if secrets else None,
        unit=released.units.kind,
    )


# --- near-duplicates -------------------------------------------------------------------------------------------


def near_duplicates_of(released: Released, settings: LikenessRules) -> Repeats:
    """Synthetic texts whose word shingles are similar to those of a private or a public text."""
    size, similarity, texts = settings.shingle, settings.similarity, released.texts
    pairs = list(similar_pairs(texts, released.private, similarity, size))
    in_public = {row for row, _ in similar_pairs(texts, released.public, similarity, size)}
    records = range(len(released.records))
    return _repeats(released.units, pairs, len(texts), len(in_public), records)


def similar_pairs(texts: Sequence[str], others: Sequence[str], similarity: float, shingle: int) -> Iterator[Pair]:
    """Yield all (index of a text, index of another) whose sets of word shingles have at least this Jaccard similarity.

    Exact: a prefix filter (Chaudhuri, Ganti and Kaushik 2006). With the shingles in one order, rarest first, two sets s
    and t of that similarity share one of the first |s| - ceil(similarity |s|) + 1 of s and of as many of t, so only
    sets that meet in such a prefix are compared. Texts of one wording are compared once.
    """
    mine, theirs = _by_wording(texts), _by_wording(others)
    sets = [shingles_of(words.split(" "), shingle) for words in theirs]
    rarity = Counter(chain.from_iterable(sets))
    index: dict[Shingle, list[int]] = defaultdict(list)
    for number, shingles in enumerate(sets):
        for element in _prefix(shingles, rarity, similarity):
            index[element].append(number)
    rows = list(theirs.values())
    for words, own in track(mine.items(), name="near-duplicates", total=len(mine), private=True):
        shingles = shingles_of(words.split(" "), shingle)
        met = {number for element in _prefix(shingles, rarity, similarity) for number in index.get(element, ())}
        for number in met:
            if jaccard(shingles, sets[number]) >= similarity:
                yield from product(own, rows[number])


def _by_wording(texts: Sequence[str]) -> dict[str, list[int]]:
    """Wording -> the texts that have it; texts without a word are left out."""
    rows: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        rows.setdefault(wording(text), []).append(index)
    rows.pop("", None)
    return rows


def _prefix(shingles: frozenset[Shingle], rarity: Counter[Shingle], similarity: float) -> list[Shingle]:
    length = len(shingles) - math.ceil(similarity * len(shingles) - 1e-9) + 1
    return sorted(shingles, key=lambda element: (rarity[element], element))[:length]


# --- personal data ---------------------------------------------------------------------------------------------


def personal_data(released: Released) -> dict[str, Repeats]:
    """For each kind, the distinct values in the synthetic texts that a private record holds too; only counts are kept.

    The records of a kind are those that hold a value of it, and its units are the units of these records.
    """
    texts = released.texts
    written = _holders(track(texts, name="personal data", total=len(texts), private=True))
    private, public = _holders(released.private), _holders(released.public)
    by_kind = {}
    for kind in KINDS:
        values = sorted(value for value in written if value[0] == kind)
        pairs = [(number, record) for number, value in enumerate(values) for record in private.get(value, ())]
        records = {record for value, holders in private.items() if value[0] == kind for record in holders}
        known = sum(value in public for value in values)
        by_kind[kind] = _repeats(released.units, pairs, len(values), known, records)
    return by_kind


def _holders(texts: Iterable[str]) -> dict[_Value, list[int]]:
    """Personal value -> the texts that hold it."""
    holders: dict[_Value, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for value in personal_values(text):
            holders[value].append(index)
    return holders


# --- planted secrets -------------------------------------------------------------------------------------------


def extraction(secrets: Secrets, synthetic: Sequence[str], settings: LikenessRules) -> Extraction:
    """Count the planted secrets that the synthetic texts give away, and the decoys.

    A secret is given away if a text holds its words in a row, whatever their case, punctuation and spaces, and nearly
    so if part of a text is within (1 - closeness) of the secret's length in edits of single characters.

    Raises:
        DataError: there is no planted secret or no decoy, or one without a word.
    """
    given = (secrets.planted, secrets.decoys)
    if not all(given) or not all(wording(secret) for side in given for secret in side):
        raise DataError(
            "A list of secrets or of decoys is empty, or one has no word.", "Declare both, with letters or digits."
        )
    texts = list(_by_wording(synthetic))
    return Extraction(
        exact=_count_extracted(given, lambda secret: _holds_secret(secret, texts)),
        near=_count_extracted(given, lambda secret: _nearly_holds_secret(secret, texts, settings.closeness)),
    )


def _count_extracted(given: Sequence[Sequence[str]], holds: Callable[[str], bool]) -> Contrast:
    planted, decoys = (sum(holds(wording(secret)) for secret in side) for side in given)
    return contrast(planted, len(given[0]), decoys, len(given[1]))


def _holds_secret(secret: str, texts: Sequence[str]) -> bool:
    return any(f" {secret} " in f" {text} " for text in texts if secret in text)


def edit_distance_within(secret: str, text: str) -> int:
    """Fewest insertions, deletions and substitutions of characters that turn some part of the text into the secret.

    Source: Myers 1999, "A fast bit-vector algorithm for approximate string matching", as in Hyyro 2001; the columns of
    Sellers' table (1980) are held as two bit vectors of their differences.

    >>> edit_distance_within("amber 45 tiger", "the code is amber 46 tigers")
    1
    """
    ones, last, score = (1 << len(secret)) - 1, 1 << (len(secret) - 1), len(secret)
    places = _places(secret)
    rises, falls, best = ones, 0, score
    for character in text:
        equal = places.get(character, 0)
        across = (((equal & rises) + rises) ^ rises) | equal
        up, down = falls | (ones & ~(across | rises)), rises & across
        score += bool(up & last) - bool(down & last)
        up, down = up << 1, down << 1
        below = equal | falls
        rises, falls = ones & (down | ~(below | up)), up & below & ones
        best = min(best, score)
    return best


def _places(secret: str) -> dict[str, int]:
    """Character -> a bit for each of its places."""
    places: dict[str, int] = defaultdict(int)
    for place, character in enumerate(secret):
        places[character] |= 1 << place
    return places


def _nearly_holds_secret(secret: str, texts: Sequence[str], closeness: float) -> bool:
    """Return whether some text holds the secret with few enough edits.

    If the secret is cut into k + 1 pieces, k edits leave one unchanged, so only texts that hold a piece are aligned.
    """
    edits = math.floor((1.0 - closeness) * len(secret) + 1e-9)
    cuts = [len(secret) * number // (edits + 1) for number in range(edits + 2)]
    pieces = [secret[start:end] for start, end in pairwise(cuts)]
    met = (text for text in texts if any(piece in text for piece in pieces))
    return any(edit_distance_within(secret, text) <= edits for text in met)


# --- counts and intervals --------------------------------------------------------------------------------------


def contrast(exposed: int, exposed_of: int, control: int, control_of: int) -> Contrast:
    """Hits among the exposed and among the control, their difference, and its exact one-sided p value.

    Under the null hypothesis any dealing of the two sides is equally likely, so given the number of hits those among
    the exposed are hypergeometric (Fisher's exact test).
    """
    hits, everyone = exposed + control, exposed_of + control_of
    rate, control_rate = Rate.wilson(exposed, exposed_of), Rate.wilson(control, control_of)
    return Contrast(
        exposed=rate,
        control=control_rate,
        excess=_excess(rate, control_rate, 0.0),
        p=float(hypergeom.sf(exposed - 1, everyone, hits, exposed_of)) if everyone else 1.0,
    )


def paired_excess(first: int, second: int, both: int, n: int) -> Estimate:
    """Difference of two rates over the same n things, with Newcombe's interval for pairs.

    Source: Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", method 10: Wilson's intervals, squared and added, less what the correlation of the pairs takes away.
    `first`, `second` and `both` count the things, out of n, that are of the first sort, of the second, and of both.
    """
    neither = n - first - second + both
    agreement = both * neither - (first - both) * (second - both)
    spread = math.sqrt(float(first) * (n - first) * second * (n - second))
    shrunk = max(agreement - n / 2.0, 0.0) if agreement > 0 else float(agreement)
    return _excess(Rate.wilson(first, n), Rate.wilson(second, n), shrunk / spread if spread else 0.0)


def _excess(first: Rate, second: Rate, correlation: float) -> Estimate:
    """Difference of two rates; without correlation it is method 10 of Newcombe 1998 for independent ones."""
    if not (first.n and second.n):
        return Estimate(0.0, -1.0, 1.0)  # nothing was tried, nothing is known

    def width(left: float, right: float) -> float:
        return math.sqrt(max(0.0, left**2 - 2.0 * correlation * left * right + right**2))

    value = first.rate - second.rate
    low = value - width(first.rate - first.low, second.high - second.rate)
    return Estimate(value, low, value + width(first.high - first.rate, second.rate - second.low))


def _repeats(units: Units, pairs: Sequence[Pair], total: int, in_public: int, records: Iterable[int]) -> Repeats:
    """Count (synthetic thing, private record) pairs from both ends.

    Public texts have `in_public` of the `total` synthetic things; `records` are the private ones that may be repeated.
    """
    owner = units.owner.tolist()
    exposed = {owner[record] for record in records}
    members = {unit for unit in exposed if unit < units.members}
    others = exposed - members
    train = {thing for thing, record in pairs if owner[record] in members}
    holdout = {thing for thing, record in pairs if owner[record] in others}
    hit = {owner[record] for _, record in pairs}
    return Repeats(
        train=Rate.wilson(len(train), total),
        holdout=Rate.wilson(len(holdout), total),
        public=Rate.wilson(in_public, total),
        excess=paired_excess(len(train), len(holdout), len(train & holdout), total),
        records=contrast(len(hit & members), len(members), len(hit & others), len(others)),
        planted=Rate.wilson(0, 0),
    )
