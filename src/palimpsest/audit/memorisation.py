"""What of single private records the synthetic texts repeat: near-duplicates, personal data, planted secrets.

Texts of one kind resemble each other, and a helpline's number is in many of them: what is found among the members says
nothing by itself. Every count stands beside the same count for a control that no generator saw, the holdout or secrets
that were never planted, with an interval of the difference. Verbatim spans are in `ngrams`.

What is counted of private rows are their units, records or persons: one coin dealt all rows of a person to one side.

Counts are exact: pairs of similar texts come from a prefix filter, which misses none, and not from hashes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Annotated, ClassVar

from scipy.stats import hypergeom

from palimpsest import validate
from palimpsest.audit.personal import KINDS, personal_values
from palimpsest.audit.statistics import Estimate, Rate, wilson
from palimpsest.audit.units import Units
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.duplicates import Shingle, jaccard, shingles_of, wording

Pair = tuple[int, int]
Value = tuple[str, str]  # kind and value
Sides = tuple[set[int], set[int]]  # units: members and others


@dataclass(frozen=True)
class LikenessRules:
    """What counts as alike.

    Attributes:
        similarity: smallest Jaccard similarity of two near-duplicates, in (0, 1].
        shingle: words per shingle; a shorter text is one shingle.
        closeness: share of a secret's letters, digits and spaces that a near match gets right, in (0, 1].
        confidence: of all intervals.
    """

    similarity: float
    shingle: int
    closeness: float
    confidence: float

    def __post_init__(self) -> None:
        validate.positive(similarity=self.similarity, shingle=self.shingle, closeness=self.closeness)
        validate.in_range(0, 1, similarity=self.similarity, closeness=self.closeness, confidence=self.confidence)


@dataclass(frozen=True)
class Contrast(Plain):
    """How many of the exposed were hit, beside a control of their kind.

    Attributes:
        exposed: members, or planted secrets.
        control: the holdout, or secrets that were never planted.
        excess: exposed rate - control rate, with Newcombe's interval.
        p: how often a fair dealing of the two sides gives at least so many hits among the exposed (one-sided).
    """

    exposed: Rate
    control: Rate
    excess: Estimate
    p: Annotated[float, At("excess", "p")]


@dataclass(frozen=True)
class Repeats(Plain):
    """What the synthetic texts hold that private records hold too, counted from both ends.

    Attributes:
        train: of the synthetic texts, or of the distinct values in them, those that a member has too.
        holdout: the same for the holdout; one may be in both.
        public: the same for the public texts.
        excess: train rate - holdout rate, with Newcombe's interval for pairs. Its unit is the synthetic text: where
            many repeat one record it is surer than it should be, and `records` is the test.
        records: of the units of members, and of the holdout, those of which a record is repeated.
    """

    train: Rate
    holdout: Rate
    public: Rate
    excess: Estimate
    records: Contrast


@dataclass(frozen=True)
class Extraction(Plain):
    """Secrets in the synthetic texts: letter by letter, and nearly so."""

    exact: Contrast
    near: Contrast


@dataclass(frozen=True)
class Secrets:
    """Planted secrets, and decoys: values drawn as they were, but never planted."""

    planted: tuple[str, ...]
    decoys: tuple[str, ...]


@dataclass(frozen=True)
class MemorisationAudit(PlainFile):
    """Private zone: counts and no value.

    Attributes:
        near_duplicates: synthetic texts like a private one.
        personal: kind -> distinct personal values.
        secrets: planted secrets that came out; None where the data set declares none.
        unit: what `records` counts: "record" or "person".
    """

    keys: ClassVar = ("unit", "near_duplicates", "personal", "secrets")
    near_duplicates: Repeats
    personal: dict[str, Repeats]
    secrets: Extraction | None
    unit: str


@dataclass(frozen=True)
class Corpora:
    """The texts that are compared.

    Attributes:
        synthetic: what was written.
        members: texts of the audit subset that were trained on.
        holdout: texts of the audit subset that were not.
        public: public texts.
        whose: the units that members and holdout are of; None: each text is one of its own.
    """

    synthetic: Sequence[str]
    members: Sequence[str]
    holdout: Sequence[str]
    public: Sequence[str]
    whose: Units | None = None

    def __post_init__(self) -> None:
        if not self.synthetic:
            raise DataError("There are no synthetic texts.", "Generate some before the audit.")
        if not self.members or not self.holdout:
            raise DataError("The audit subset is empty.", "Give the audit a larger audit.size.")

    @property
    def private(self) -> list[str]:
        """Members, then the holdout: the pool whose places are the numbers of records."""
        return [*self.members, *self.holdout]

    @property
    def units(self) -> Units:
        """The units of `private`."""
        return Units.alone(len(self.members), len(self.holdout)) if self.whose is None else self.whose

    def sides(self, records: Iterable[int]) -> Sides:
        """The units of these records: which are members, and which are not."""
        units = self.units
        chosen = {int(units.owner[record]) for record in records}
        members = {unit for unit in chosen if unit < units.members}
        return members, chosen - members


def memorisation(texts: Corpora, secrets: Secrets | None, settings: LikenessRules) -> MemorisationAudit:
    """Count what the synthetic texts repeat of members and, as the control, of records that nothing was fitted on.

    Each p value is exact, whatever else was trained on: if the synthetic texts do not depend on the coins, those of the
    repeated units are fair, and their number among the members is hypergeometric given the sizes of both sides.

    Args:
        texts: synthetic, private and public texts.
        secrets: what the data set declares as planted, or None.
        settings: what counts as alike.
    """
    return MemorisationAudit(
        near_duplicates=near_duplicates_of(texts, settings),
        personal=personal_data(texts, settings.confidence),
        secrets=extraction(secrets, texts.synthetic, settings) if secrets else None,
        unit=texts.units.kind,
    )


# --- near-duplicates -------------------------------------------------------------------------------------------


def near_duplicates_of(texts: Corpora, settings: LikenessRules) -> Repeats:
    """Synthetic texts whose word shingles are similar to those of a private or a public text."""
    size, similarity = settings.shingle, settings.similarity
    pairs = list(similar_pairs(texts.synthetic, texts.private, similarity, size))
    in_public = {row for row, _ in similar_pairs(texts.synthetic, texts.public, similarity, size)}
    records = range(len(texts.private))
    return _repeats(texts, pairs, len(texts.synthetic), len(in_public), records, settings.confidence)


def similar_pairs(texts: Sequence[str], others: Sequence[str], similarity: float, shingle: int) -> Iterator[Pair]:
    """All (index of a text, index of another) whose sets of word shingles have at least this Jaccard similarity.

    Exact: a prefix filter (Chaudhuri, Ganti and Kaushik 2006). With the shingles in one order, rarest first, two sets s
    and t of that similarity share one of the first |s| - ceil(similarity |s|) + 1 of s and of as many of t, so only
    sets that meet in such a prefix are compared. Texts of one wording are compared once.
    """
    mine, theirs = _by_wording(texts), _by_wording(others)
    sets = [shingles_of(words.split(" "), shingle) for words in theirs]
    rarity = Counter(element for found in sets for element in found)
    index: dict[Shingle, list[int]] = defaultdict(list)
    for number, found in enumerate(sets):
        for element in _prefix(found, rarity, similarity):
            index[element].append(number)
    rows = list(theirs.values())
    for words, own in track(mine.items(), name="near-duplicates", total=len(mine), private=True):
        found = shingles_of(words.split(" "), shingle)
        met = {number for element in _prefix(found, rarity, similarity) for number in index.get(element, ())}
        for number in met:
            if jaccard(found, sets[number]) >= similarity:
                yield from product(own, rows[number])


def _by_wording(texts: Sequence[str]) -> dict[str, list[int]]:
    """Wording -> the texts that have it; texts without a word are left out."""
    rows: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        rows.setdefault(wording(text), []).append(index)
    rows.pop("", None)
    return rows


def _prefix(found: frozenset[Shingle], rarity: Counter[Shingle], similarity: float) -> list[Shingle]:
    length = len(found) - math.ceil(similarity * len(found) - 1e-9) + 1
    return sorted(found, key=lambda element: (rarity[element], element))[:length]


# --- personal data ---------------------------------------------------------------------------------------------


def personal_data(texts: Corpora, confidence: float) -> dict[str, Repeats]:
    """For each kind, the distinct values in the synthetic texts that a private record holds too; only counts are kept.

    The records of a kind are those that hold a value of it, and its units are theirs.
    """
    written = _holders(track(texts.synthetic, name="personal data", total=len(texts.synthetic), private=True))
    private, public = _holders(texts.private), _holders(texts.public)
    found = {}
    for kind in KINDS:
        values = sorted(value for value in written if value[0] == kind)
        pairs = [(number, record) for number, value in enumerate(values) for record in private.get(value, ())]
        records = {record for value, holders in private.items() if value[0] == kind for record in holders}
        known = sum(value in public for value in values)
        found[kind] = _repeats(texts, pairs, len(values), known, records, confidence)
    return found


def _holders(texts: Iterable[str]) -> dict[Value, list[int]]:
    """Personal value -> the texts that hold it."""
    holders: dict[Value, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for value in personal_values(text):
            holders[value].append(index)
    return holders


# --- planted secrets -------------------------------------------------------------------------------------------


def extraction(secrets: Secrets, synthetic: Sequence[str], settings: LikenessRules) -> Extraction:
    """How many planted secrets the synthetic texts give away, and how many decoys.

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
        exact=_found(given, lambda secret: _held(secret, texts), settings.confidence),
        near=_found(given, lambda secret: _nearly_held(secret, texts, settings.closeness), settings.confidence),
    )


def _found(given: Sequence[Sequence[str]], holds: Callable[[str], bool], confidence: float) -> Contrast:
    planted, decoys = (sum(holds(wording(secret)) for secret in side) for side in given)
    return contrast(planted, len(given[0]), decoys, len(given[1]), confidence)


def _held(secret: str, texts: Sequence[str]) -> bool:
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


def _nearly_held(secret: str, texts: Sequence[str], closeness: float) -> bool:
    """Whether some text holds the secret with few enough edits.

    Of k + 1 pieces of the secret k edits leave one as it is, so only texts that hold a piece are aligned.
    """
    edits = math.floor((1.0 - closeness) * len(secret) + 1e-9)
    cuts = [len(secret) * number // (edits + 1) for number in range(edits + 2)]
    pieces = [secret[start:end] for start, end in pairwise(cuts)]
    met = (text for text in texts if any(piece in text for piece in pieces))
    return any(edit_distance_within(secret, text) <= edits for text in met)


# --- counts and intervals --------------------------------------------------------------------------------------


def contrast(exposed: int, exposed_of: int, control: int, control_of: int, confidence: float) -> Contrast:
    """Hits among the exposed and among the control, their difference, and its exact one-sided p value.

    Under the null hypothesis any dealing of the two sides is equally likely, so given the number of hits those among
    the exposed are hypergeometric (Fisher's exact test).
    """
    hits, everyone = exposed + control, exposed_of + control_of
    return Contrast(
        exposed=_rate(exposed, exposed_of, confidence),
        control=_rate(control, control_of, confidence),
        excess=_excess(_rate(exposed, exposed_of, confidence), _rate(control, control_of, confidence), 0.0),
        p=float(hypergeom.sf(exposed - 1, everyone, hits, exposed_of)) if everyone else 1.0,
    )


def paired_excess(first: int, second: int, both: int, n: int, confidence: float) -> Estimate:
    """Difference of two rates over the same n things, with Newcombe's interval for pairs.

    Source: Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", method 10: Wilson's intervals, squared and added, less what the correlation of the pairs takes away.

    Args:
        first: things of the first sort.
        second: things of the second sort.
        both: things of both sorts.
        n: all things.
        confidence: of the interval.
    """
    neither = n - first - second + both
    agreement = both * neither - (first - both) * (second - both)
    spread = math.sqrt(float(first) * (n - first) * second * (n - second))
    shrunk = max(agreement - n / 2.0, 0.0) if agreement > 0 else float(agreement)
    return _excess(_rate(first, n, confidence), _rate(second, n, confidence), shrunk / spread if spread else 0.0)


def _excess(first: Rate, second: Rate, correlation: float) -> Estimate:
    """Difference of two rates; without correlation it is method 10 of Newcombe 1998 for independent ones."""
    if not (first.n and second.n):
        return Estimate(0.0, -1.0, 1.0)  # nothing was tried, nothing is known

    def width(left: float, right: float) -> float:
        return math.sqrt(max(0.0, left**2 - 2.0 * correlation * left * right + right**2))

    value = first.rate - second.rate
    low = value - width(first.rate - first.low, second.high - second.rate)
    return Estimate(value, low, value + width(first.high - first.rate, second.rate - second.low))


def _rate(count: int, n: int, confidence: float) -> Rate:
    return Rate(count, n, *wilson(count, n, confidence))


def _repeats(
    texts: Corpora, pairs: Sequence[Pair], total: int, in_public: int, records: Iterable[int], confidence: float
) -> Repeats:
    """Count (synthetic thing, private record) pairs from both ends.

    Args:
        texts: whose the records are.
        pairs: who has what in common.
        total: synthetic things.
        in_public: of these, those that a public text has.
        records: private records that could be repeated.
        confidence: of the intervals.
    """
    owner, (members, others) = texts.units.owner.tolist(), texts.sides(records)
    train = {thing for thing, record in pairs if owner[record] in members}
    holdout = {thing for thing, record in pairs if owner[record] in others}
    hit = {owner[record] for _, record in pairs}
    return Repeats(
        train=_rate(len(train), total, confidence),
        holdout=_rate(len(holdout), total, confidence),
        public=_rate(in_public, total, confidence),
        excess=paired_excess(len(train), len(holdout), len(train & holdout), total, confidence),
        records=contrast(len(hit & members), len(members), len(hit & others), len(others), confidence),
    )
