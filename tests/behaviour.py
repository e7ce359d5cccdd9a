"""What each query does on three fixed data sets: what it costs, the noise it takes, and what it answers without noise.

`versions.json` beside this file holds all of it, each query under its declared versions (`privacy.planned`).
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin
from unittest.mock import patch

import numpy as np
import torch
from pydantic import BaseModel

import palimpsest
from palimpsest.methods.dp_lm.fit import WEIGHT_DECAY
from palimpsest.methods.dp_lm.settings import DpSgd
from palimpsest.methods.registry import CHARGED, METHODS
from palimpsest.methods.shared.method import Method
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.params.resolve import to_plain
from palimpsest.params.schema import Dataset, Params, stated
from palimpsest.privacy import choice, depth, limited_domain, queries
from palimpsest.privacy.choice import Choice
from palimpsest.privacy.depth import DepthPicks
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import to_json
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import ClassMeans
from palimpsest.privacy.planned import QUERIES, TOOLS, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.tables import FieldMeans, FieldTables
from palimpsest.privacy.thresholded import KeyPhrases, StatementCounts, StatementPhrases
from palimpsest.privacy.votes import Ballot, DomainBallot, Slate, Vote, VoteRounds
from palimpsest.privacy.words import ReplacedWords, WordSets
from palimpsest.records.duplicates import SHINGLE
from palimpsest.records.phrases import PublicWords
from palimpsest.records.statements import Attribute
from palimpsest.settings import Follows, rule_of
from tests.prediction.test_fewshot import shots
from tests.prediction.tiny import tokenizer
from tests.prediction.world import DIFFERENCE, VECTOR, Counted, freeze, wave
from tests.training.test_dpsgd import make_plan, make_query, two_losses

FILE = Path(__file__).with_name("versions.json")
LABELS = ("praise", "a complaint")
_WORDS = ("lamp", "kettle", "radio", "hums", "leaks", "slowly")
_DIGITS = 6
# Modules whose change is a reason to ask whether anything of this changed.
MECHANISMS = ("privacy", "training", "prediction")


def _rows(*told: tuple[str, str, str | None]) -> list[PrivateRow]:
    return [
        PrivateRow(text, label, person and (person * 64)[:64], f"{at % 3},{at % 2}")
        for at, (text, label, person) in enumerate(told)
    ]


SETS: Mapping[str, list[PrivateRow]] = {
    "records": _rows(
        *((f"The {thing} {verb}.", LABELS[(at + len(verb)) % 2], None)
          for at, thing in enumerate(_WORDS[:3]) for verb in _WORDS[3:])
    ),
    "odd records": _rows(
        ("", "praise", None), ("lamp " * 60, "a complaint", None), ("The lamp hums.", "no label of these", None),
        ("kettle \u0041\u030a 12", "praise", None), *[("The radio leaks", "praise", None)] * 2,
    ),
    "persons": _rows(
        ("The lamp hums.", "praise", "a"), ("The lamp leaks.", "a complaint", "a"), ("Lamps hum slowly", "praise", "a"),
        ("A kettle hums.", "praise", "b"), ("A radio leaks.", "a complaint", "c"), ("A radio hums", "a complaint", "c"),
    ),
}  # fmt: skip


def encode(texts: Sequence[str]) -> np.ndarray:
    """Counts of a few words, and the length: (n, 7)."""
    return np.array([[*(text.lower().count(word) for word in _WORDS), 1.0 + len(text) % 5] for text in texts])


class Watch(NoiseSource):
    """Adds nothing, draws everything, and notes the scale of what was asked for."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.scales: set[tuple[str, float]] = set()

    def note(self, kind: str, scale: float) -> None:
        self.scales.add((kind, float(scale)))

    def whole_normal(self, size: int, std: float) -> np.ndarray:
        self.note("normal", std)
        return np.zeros(size, dtype=np.int64)

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        self.note("gaussian", std)

    def bernoulli(self, size: int, rate: float) -> np.ndarray:
        self.note("coin", rate)
        return np.arange(size) % 3 != 1

    def integers(self, size: int, high: int) -> np.ndarray:
        self.note("integers", high)
        return (np.arange(size) * 7919) % high


def _top(watch: Watch) -> Callable[[Sequence[float], int, float], list[int]]:
    def best(scores: Sequence[float], count: int, scale: float) -> list[int]:
        watch.note("gumbel", scale)
        return [int(place) for place in np.argsort(-np.asarray(scores), kind="stable")[:count]]

    return best


def _counted(watch: Watch) -> Callable[[Sequence[int], float], list[int]]:
    def exact(counts: Sequence[int], sigma: float) -> list[int]:
        watch.note("discrete gaussian", sigma)
        return list(counts)

    return exact


def answer(query: Any, rows: Sequence[PrivateRow], watch: Watch) -> Any:
    """What a query answers where nothing is added to it."""
    with patch.object(queries, "discrete_gaussian", _counted(watch)):
        for module in (choice, depth, limited_domain):
            patch.object(module, "gumbel_top_k", _top(watch)).start()
        try:
            if hasattr(type(query), "run_steps"):
                return query.run_steps(rows, watch, Counted(query.steps))
            return query.run(rows, watch)
        finally:
            patch.stopall()


def _written(query: Any, rows: Sequence[PrivateRow], watch: Watch) -> Any:
    """The scores of each token of a wave."""
    frozen = freeze(Patch())
    try:
        query.run_steps([row for row in rows if row.label in LABELS], watch, Counted(query.steps))
        return [scores.tolist() for _, scores in frozen.draws()] + [
            told[1] for told in frozen.events if told[0] == "passes"
        ]
    finally:
        patch.stopall()


class Patch:
    """`setattr` of pytest's monkeypatch, undone by `patch.stopall`."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        patch.object(target, name, value).start()


@dataclass(frozen=True)
class Case:
    """A query with noise, and how its answer comes about."""

    query: Any
    answer: Callable[[Any, Sequence[PrivateRow], Watch], Any] = answer


def cases() -> dict[str, list[Case]]:
    """Query -> its cases."""
    texts = {label: [f"A {word} here" for word in _WORDS] for label in LABELS}
    slate = Slate(texts, {label: encode(own) for label, own in texts.items()})
    vectors = Slate({}, slate.vectors)
    picking = DomainBallot(encode, LimitedDomain(domain=4, picks=2, scale=0.5, delta=1e-3))
    thing = Attribute("thing", {"lamp": ["lamp"], "kettle": ["kettle"], "radio": ["radio"]})
    does = Attribute("does", {}, r"hums|leaks")
    sets = WordSets(
        (_WORDS[:3], _WORDS[3:]), np.tile(np.array([[1, 0.5, 0.2], [0.5, 1, 0.1], [0.2, 0.1, 1]]), (2, 1, 1))
    )
    return {
        "choice": [Case(Choice((_by("hums"), _by("lamp")), 0.5))],
        "class_means": [Case(ClassMeans(LABELS, encode, 7, 2.0))],
        "depth_picks": [Case(DepthPicks(encode, encode(texts[LABELS[0]]), np.eye(7), {LABELS[0]: 2}, 0.5))],
        "discriminator": [Case(make_query(make_plan(clipping="separate", losses=2), losses=two_losses))],
        "field_means": [Case(FieldMeans(LABELS, (3, 2), encode, 7, 2.0))],
        "field_tables": [Case(FieldTables(LABELS, (3, 2), ((0,), (1, 2)), 2.0))],
        "key_phrases": [Case(KeyPhrases(LABELS, PublicWords.of(["the lamp hums", "the kettle"], 0.5), 2, 0.01, 1e-4))],
        "label_histogram": [Case(LabelHistogram(LABELS, 3.0))],
        "replaced_words": [Case(ReplacedWords(sets, 2.0))],
        "shots": [Case(shots(), _shots)],
        "statement_counts": [Case(StatementCounts((thing,), (("lamp", "kettle", "radio"),), LABELS, 2, 3.0, 0.25))],
        "statement_phrases": [Case(StatementPhrases((thing, does), LABELS, 2, 0.01, 1e-4))],
        "train": [
            Case(make_query(make_plan(steps=2, eta=0.001))),
            Case(make_query(make_plan(rate=0.7), person="rows", micro_batch=2)),
        ],
        "vote": [Case(Vote(Ballot(encode, 2, 3.0, 2**16), slate))],
        "vote rounds": [
            Case(VoteRounds(Ballot(encode, 1, 3.0), LABELS, slate, lambda _done: slate, 2)),
            Case(VoteRounds(picking, LABELS, vectors, lambda _done: vectors, 2)),
        ],
        "wave": [Case(wave(), _written), Case(wave(clipping=DIFFERENCE, vector=VECTOR), _written)],
    }  # fmt: skip


def _by(word: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda texts: [LABELS[word not in text] for text in texts]


def _shots(query: Any, rows: Sequence[PrivateRow], watch: Watch) -> Any:
    found: list[list[float]] = []

    def noted(tensor: torch.Tensor, std: float) -> None:
        watch.note("gaussian", std)
        found.append(tensor.tolist())

    with patch.object(watch, "add_gaussian", noted):
        query.run_steps([row for row in rows if len(row.text) < 60], watch, Counted(query.steps))
    return found


def numbers(value: Any) -> Iterator[tuple[str, float]]:
    """Each number of an answer behind its place; of a text its hash."""
    yield from _numbers("", value)


def _numbers(place: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, torch.nn.Module):
        value = [weight.detach().double().flatten().tolist() for weight in value.parameters()]
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(f"{place}/{name}", inner)
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _numbers(f"{place}/{at}", inner)
    elif isinstance(value, str) or value is None:
        yield place, float(int(hashlib.sha256(str(value).encode()).hexdigest()[:6], 16))
    elif hasattr(value, "text"):
        yield from _numbers(place, [value.text, value.label])
    else:
        yield place, float(value)


def summary(value: Any) -> list[float]:
    """How many numbers an answer has, their sum, length and two projections, rounded."""
    found = np.array([number for _, number in numbers(value)] or [0.0])
    waves = [found @ np.cos(np.arange(1, len(found) + 1) * step) for step in (1.0, 2.7)]
    return [float(len(found)), *(_rounded(one) for one in (found.sum(), np.linalg.norm(found), *waves))]


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 or not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")


def behaviour(query: str) -> dict[str, Any]:
    """All that the file holds of a query."""
    return {"versions": dict(versions_of(query)), "cases": [_of(case) for case in cases()[query]]}


def _of(case: Case) -> dict[str, Any]:
    watch, query = Watch(), case.query
    answers = {name: case.answer(query, rows, watch) for name, rows in SETS.items()}
    return {
        "event": to_json(query.event()),
        "own_delta": _rounded(getattr(query, "own_delta", 0.0)),
        "noise": [[kind, _rounded(scale)] for kind, scale in sorted(watch.scales)],
        "answers": {name: summary(value) for name, value in answers.items()},
        "moved": _rounded(max(_moved(case, rows, answers[name]) for name, rows in SETS.items())),
    }


def _moved(case: Case, rows: Sequence[PrivateRow], whole: Any) -> float:
    """How far the answer moves, in L2, where one unit goes."""
    known = dict(numbers(whole))
    found = 0.0
    for unit in dict.fromkeys(row.person or f"{at}" for at, row in enumerate(rows)):
        left = [row for at, row in enumerate(rows) if (row.person or f"{at}") != unit]
        other = dict(numbers(case.answer(case.query, left, Watch())))
        distance = sum((known.get(key, 0.0) - other.get(key, 0.0)) ** 2 for key in known.keys() | other.keys())
        found = max(found, math.sqrt(distance))
    return found


_TEXTS = ("The lamp hums.", "A kettle \u00e5 12", "")


def tools() -> dict[str, Any]:
    """Tool -> its version, and what it makes of fixed texts."""
    from palimpsest.methods.dp_lm.serialise import serialiser

    own = serialiser(tokenizer(), dict.fromkeys(LABELS, "words"), 16, "text")
    vectors = Encoder(resolve_encoder("embedded")).encode_batch([*_TEXTS[:2], "The lamp hums. " * 100])
    found = {
        "encoder": [[round(float(one), 3) for one in vector[:6]] for vector in vectors],
        "engine": behaviour("train")["cases"],
        "prompts": {label: list(own.prompts[label]) for label in LABELS},
        "tokenizer": [tokenizer()(text)["input_ids"] for text in _TEXTS],
    }
    return {name: {"version": TOOLS[name], "makes": json.loads(json.dumps(found[name]))} for name in TOOLS}


def defaults() -> dict[str, Any]:
    """Method -> key -> its default, and each default that depends on the data: none changes under one version."""
    facts = stated(Dataset.model_validate(_DATA), "embedded")
    found = {method.name: dict(sorted(_with_constants(method))) for method in METHODS}
    found["derived"] = {
        key: json.loads(json.dumps(rule.of(facts, written)))
        for name, written in (("", {}), (" tuned", {"reads": "tuned"}))
        for key, rule in ((f"{key}{name}", rule) for key, rule in _all_rules())
        if not written or key.startswith("discriminators")
    }
    return found


def _all_rules() -> Iterator[tuple[str, Follows]]:
    yield from _rules_of(Params, "")
    for known in CHARGED:
        yield from _rules_of(known.settings, f"variants.*.{known.name}.")


def _rules_of(section: Any, above: str) -> Iterator[tuple[str, Follows]]:
    """Yield every key whose default depends on the data, of a section or of all that a type names."""
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        for part in get_args(section):
            yield from _rules_of(part, above)
        return
    for key, field in section.model_fields.items():
        if rule := rule_of(field):
            yield f"{above}{key}", rule
        yield from _rules_of(field.annotation, f"{above}{key}.{'*.' * (get_origin(field.annotation) is Mapping)}")


_DATA = {
    "asset": "a", "private": "a.jsonl", "public": "b.jsonl", "task": "classify", "text": "text", "label": "label",
    "labels": dict.fromkeys(LABELS, "words"), "n_public": 5000, "max_length": 200,
}  # fmt: skip


def _with_constants(method: Method) -> Iterator[tuple[str, Any]]:
    """Yield what a method's rows rest on unless it is told otherwise: its defaults, and constants that once were keys.

    Whoever was charged before left them at these values, and is known as before.
    """
    for key, value in _defaults(method.settings, ""):
        if key == "filters":
            until = list(value).index("similarity") + 1  # where the key was
            value = dict([*list(value.items())[:until], ("shingle", SHINGLE), *list(value.items())[until:]])
        yield key, value
    if issubclass(method.settings, DpSgd):
        yield "weight_decay", WEIGHT_DECAY


def _defaults(section: type[BaseModel], place: str) -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        if not field.is_required():
            yield (
                f"{place}{name}",
                json.loads(json.dumps(to_plain(field.get_default(call_default_factory=True)), default=str)),
            )


def modules() -> dict[str, str]:
    """Module of a mechanism -> digest of its source."""
    home = Path(palimpsest.__file__).parent
    paths = {
        path.relative_to(home).as_posix(): path for name in MECHANISMS for path in sorted((home / name).glob("*.py"))
    } | {"lab/shots.py": home.with_name("palimpsest_lab") / "shots.py"}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in paths.items()}


def found() -> dict[str, Any]:
    """All of it, as the file has it."""
    return {
        "queries": {query: behaviour(query) for query in QUERIES},
        "tools": tools(),
        "defaults": defaults(),
        "modules": modules(),
    }
