"""The embedded demo data set: support tickets about products that do not exist.

The world knows three kinds of things. *Population facts* are pairs of a product and a symptom ("the Veltrix 3" +
"overheats while charging") that many private tickets state; good synthetic data carries them over. *Individual facts*
(an order number, a phone, an address) belong to one ticket; released data must hold none of them. *Canaries* are
secrets planted on purpose, some of them many times, so that a model trained without privacy can be shown to leak. No
public model has seen any of it, because the seed invents it.

A ticket is routed to a team. Some requests decide the team by their wording; otherwise the product does, with
exceptions for some of its symptoms, by a table that exists only in the private tickets. Public tickets speak the same
language about other products: they mention the private ones in passing, so that a small model can spell the names,
but never with a symptom, and they have no labels. So public text alone cannot do the task.

A world may have authors: then a customer wrote several of the private tickets, quotes their own details in them, and is
who the answer key counts.
"""

import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from palimpsest import validate
from palimpsest.files import atomic_path, write_json
from palimpsest.records.record import Record
from palimpsest.records.world.facts import Canary, Facts, IndividualFact, PopulationFact
from tools.world import grammar
from tools.world.details import CANARY_KIND, DETAIL_KINDS, Customer, Mint, apportioned, dealt_authors
from tools.world.draw import Draw
from tools.world.grammar import sentence

CUSTOMER = "customer"  # the unit column of a world with authors
_TEAM_SHARES = dict(zip(grammar.LABELS, (0.27, 0.23, 0.19, 0.16, 0.15), strict=True))  # of routed tickets and requests
_EXCEPTION = 4  # of a product's symptoms, one in so many is not the home team's
_NAMELESS_SHARE = 0.08  # tickets that name no product
_REQUEST_SHARE = 0.55  # tickets whose request decides the team
_DECOY_SHARE = 0.25  # tickets with another team's words in them
_ASIDE_SHARE = 0.25  # tickets that mention another product in passing
_MOST_ROWS = 1_000_000
_PUBLIC_WEIGHTS = 1000, 50  # of the commonest and the rarest public pair: public products have rare troubles too
_WHOLE_WORLD = 10_000  # private tickets that leave room for all facts and canaries as often as by default
_WORDS = (10, 22)  # a ticket's aimed length; the obligatory sentences may go a little beyond


@dataclass(frozen=True)
class WorldSettings:
    """The size and the truth of a world."""

    seed: int  # the same seed gives the same bytes on every machine
    private_rows: int = 10_000  # labelled tickets of the private training set
    test_rows: int = 1500  # labelled private test tickets
    public_rows: int = 8000  # public tickets, without labels
    public_test_rows: int = 1500  # labelled tickets like the test tickets, invented and declared public
    products: int = 12  # products that only the private tickets complain about
    public_products: int = 48  # all others
    facts: int = 96  # population facts; each product has about facts / products of them
    support_low: int = 10  # private tickets that state the rarest fact
    support_high: int = 400  # private tickets that state the commonest fact; the others are log-spaced between
    public_pairs: int = 240  # product-symptom pairs of the public tickets, also log-spaced
    detail_share: float = 0.6  # share of the tickets that hold an individual detail
    label_noise: float = 0.03  # share of the labelled tickets routed to a wrong team
    canaries: int = 20  # planted secrets
    # in how many private tickets a canary is planted; the canaries take turns
    canary_repeats: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    # customers who wrote the private tickets; None: each ticket is somebody else's, and names nobody
    authors: int | None = None

    def __post_init__(self) -> None:
        validate.require_positive(support_low=self.support_low)
        validate.require_in_range(100, _MOST_ROWS, private_rows=self.private_rows, public_rows=self.public_rows)
        validate.require_in_range(50, _MOST_ROWS, test_rows=self.test_rows, public_test_rows=self.public_test_rows)
        validate.require_in_range(0, 1, detail_share=self.detail_share, label_noise=self.label_noise)
        validate.require_in_range(2, self.products * len(grammar.SYMPTOMS), facts=self.facts)
        validate.require_in_range(20, self.public_products * len(grammar.SYMPTOMS), public_pairs=self.public_pairs)
        validate.require_in_range(
            2, len(grammar.STEMS) * len(grammar.ENDINGS), all_products=self.products + self.public_products
        )
        # A ticket states at most two facts, never one twice: these bounds leave a row for every statement.
        validate.require_in_range(self.support_low, 0.4 * self.private_rows, support_high=self.support_high)
        validate.require_in_range(0, 1.4 * self.private_rows, stated_facts=sum(self.supports))
        validate.require_in_range(0, self.private_rows, planted_canaries=sum(self.plantings))
        if self.authors is not None:
            validate.require_in_range(1, self.private_rows, authors=self.authors)

    @classmethod
    def sized(cls, *, private_rows: int, **given: Any) -> "WorldSettings":
        """A world of so many rows. A small one has fewer facts and canaries, and states each fact less often."""
        scale = math.sqrt(min(1.0, private_rows / _WHOLE_WORLD))
        fewer = ("facts", "support_low", "support_high", "canaries")
        return cls(**given, private_rows=private_rows, **{name: round(scale * getattr(cls, name)) for name in fewer})

    @property
    def supports(self) -> list[int]:
        """Support of every population fact, log-spaced, the commonest first."""
        return _log_spaced(self.support_high, self.support_low, self.facts)

    @property
    def plantings(self) -> list[int]:
        """Repeats of every canary."""
        return [self.canary_repeats[index % len(self.canary_repeats)] for index in range(self.canaries)]


@dataclass(frozen=True)
class World:
    """All records of the world and its answer key; no two records have the same text."""

    private: tuple[Record, ...]
    test: tuple[Record, ...]
    public: tuple[Record, ...]
    public_test: tuple[Record, ...]
    facts: Facts  # the answer key
    # "private" and "test" -> who wrote each of the records; empty in a world without authors
    customers: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Pair:
    """A product and its symptom; `team` is None for public pairs, which are routed nowhere."""

    subject: str
    forms: tuple[str, str]
    weight: int
    team: str | None = None

    @property
    def slots(self) -> dict[str, str]:
        return {"subject": self.subject, "finite": self.forms[0], "gerund": self.forms[1]}


@dataclass(frozen=True)
class _Topic:
    """What one ticket is about: at most two pairs, and the secret planted in it, if any."""

    main: _Pair | None
    second: _Pair | None = None
    secret: str | None = None

    @property
    def parts(self) -> tuple[_Pair | str | None, ...]:
        return self.main, self.second, self.secret


@dataclass(frozen=True)
class _Ticket:
    text: str
    team: str | None
    details: tuple[tuple[str, str], ...]  # (kind, value)


def make_world(settings: WorldSettings) -> World:
    """Invent the world of a seed."""
    seed = settings.seed
    names = grammar.product_names(Draw(seed, "products"), settings.products + settings.public_products)
    own, others = names[: settings.products], names[settings.products :]
    truth = _routed(_pairs(own, settings.supports, Draw(seed, "facts")))
    elsewhere = _pairs(others, _log_spaced(*_PUBLIC_WEIGHTS, settings.public_pairs), Draw(seed, "public pairs"))
    writer = _TicketWriter(settings, names)
    secrets = [writer.mint.value(CANARY_KIND, Draw(seed, f"canary/{index}")) for index in range(settings.canaries)]
    planted = [secret for secret, repeats in zip(secrets, settings.plantings, strict=True) for _ in range(repeats)]

    authors = _authors(settings, writer.mint)
    topics = _topics(truth, settings.private_rows, Draw(seed, "private topics"), planted)
    private = writer.tickets("private", topics, authors.get("private"))
    test = writer.tickets("test", _sampled_topics(truth, settings, settings.test_rows, "test"), authors.get("test"))
    public = writer.tickets("public", _sampled_topics(elsewhere, settings, settings.public_rows, "public"))
    declared = writer.tickets("public test", _sampled_topics(truth, settings, settings.public_test_rows, "public test"))
    customers = {part: [author.id for author in own] for part, own in authors.items()}
    support = _support(topics, customers.get("private", range(len(topics))))
    facts = Facts(
        _population(truth, support), _individual(private), _canaries(secrets, support), tuple(names), grammar.SYMPTOMS
    )
    unlabelled = tuple(Record(ticket.text) for ticket in public)
    return World(_records(private), _records(test), unlabelled, _records(declared), facts, customers)


def write_world(world: World, folder: Path | str) -> None:
    """Write private.jsonl, test.jsonl, public_test.jsonl (text, label), public.jsonl (text) and facts.json.

    In a world with authors the private and the test rows have their customer too.
    """
    folder = Path(folder)
    for name in ("private", "test", "public", "public_test"):
        _write_rows(folder / f"{name}.jsonl", getattr(world, name), world.customers.get(name))
    save_facts(world.facts, folder / "facts.json")


def save_facts(facts: Facts, path: Path | str) -> None:
    """Write the answer key as JSON. It names every secret of the world: a private file."""
    write_json(path, facts.to_json())


def _write_rows(path: Path, records: Sequence[Record], customers: Sequence[str] | None) -> None:
    rows = [{"text": r.text} if r.label is None else {"text": r.text, "label": r.label} for r in records]
    for row, customer in zip(rows, customers or (), strict=customers is not None):
        row[CUSTOMER] = customer
    with atomic_path(path) as draft:
        draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8", newline="\n")


def _authors(settings: WorldSettings, mint: Mint) -> dict[str, list[Customer]]:
    """Who wrote each private and each test ticket, other people; nothing in a world without authors."""
    if settings.authors is None:
        return {}
    rows = {"private": settings.private_rows, "test": settings.test_rows}
    share = settings.authors / settings.private_rows
    return {part: dealt_authors(part, math.ceil(share * of), of, settings.seed, mint) for part, of in rows.items()}


# The truth of the world.


def _pairs(products: Sequence[str], weights: Sequence[int], draw: Draw) -> list[_Pair]:
    """One pair per weight; products take turns, and no product has a symptom twice."""
    unused = {product: draw.shuffled(grammar.SYMPTOMS) for product in products}
    turns = [products[index % len(products)] for index in range(len(weights))]
    dealt = zip(turns, draw.shuffled(weights), strict=True)
    return [_Pair(product, unused[product].pop(), weight) for product, weight in dealt]


def _routed(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Give every pair a team: the home team of its product, with exceptions for some symptoms.

    Greedy, from the commonest down, so that the teams' shares of the tickets come near the aimed ones: a product goes
    to the team that lacks most, and so, whatever its product, does every `_EXCEPTION`-th of its pairs.
    """
    ranked = sorted(pairs, key=lambda pair: -pair.weight)
    lacking = {team: share * sum(pair.weight for pair in pairs) for team, share in _TEAM_SHARES.items()}
    routed: list[_Pair] = []
    homes: dict[str, str] = {}
    seen = Counter[str]()
    for pair in ranked:
        neediest = max(lacking, key=lacking.__getitem__)
        seen[pair.subject] += 1
        exception = seen[pair.subject] % _EXCEPTION == 0
        team = neediest if exception else homes.setdefault(pair.subject, neediest)
        lacking[team] -= pair.weight
        routed.append(replace(pair, team=team))
    return routed


def _log_spaced(high: int, low: int, count: int) -> list[int]:
    return [round(high * (low / high) ** (rank / (count - 1))) for rank in range(count)]


# Which ticket is about what.


def _topics(pairs: Sequence[_Pair], rows: int, draw: Draw, secrets: Sequence[str] = ()) -> list[_Topic]:
    """Deal every pair to exactly `weight` of the rows, one or two to a row, and the secrets to one row each."""
    deck = draw.shuffled([pair for pair in pairs for _ in range(pair.weight)])
    named = min(len(deck), rows - round(_NAMELESS_SHARE * rows))
    seconds = _second_pairs(deck[:named], deck[named:], draw)
    topics = [_Topic(main, seconds.get(row)) for row, main in enumerate(deck[:named])]
    topics += [_Topic(None)] * (rows - named)
    holders = draw.shuffled(range(rows))
    for row, secret in zip(holders, secrets, strict=False):
        topics[row] = replace(topics[row], secret=secret)
    return draw.shuffled(topics)


def _second_pairs(mains: Sequence[_Pair], rest: Sequence[_Pair], draw: Draw) -> dict[int, _Pair]:
    """Give each of the rest to one row whose main pair is another one."""
    free = draw.shuffled(range(len(mains)))
    seconds: dict[int, _Pair] = {}
    for pair in rest:
        place = next(p for p in range(len(free) - 1, -1, -1) if mains[free[p]] is not pair)
        seconds[free.pop(place)] = pair
    return seconds


def _sampled_topics(pairs: Sequence[_Pair], settings: WorldSettings, rows: int, stream: str) -> list[_Topic]:
    """Topics in the proportions of the pairs' weights, with as many statements per row as the private tickets have."""
    statements = round(rows * sum(settings.supports) / settings.private_rows)
    counts = apportioned([pair.weight for pair in pairs], statements)
    scaled = [replace(pair, weight=count) for pair, count in zip(pairs, counts, strict=True)]
    return _topics(scaled, rows, Draw(settings.seed, f"{stream} topics"))


# Writing the tickets.


class _TicketWriter:
    """Turns topics into texts, none of them twice, and with details none of which comes twice."""

    def __init__(self, settings: WorldSettings, products: Sequence[str]) -> None:
        self.mint = Mint()
        self._settings, self._products = settings, products
        self._seen: set[str] = set()

    def tickets(
        self, stream: str, topics: Sequence[_Topic], authors: Sequence[Customer] | None = None
    ) -> list[_Ticket]:
        """One ticket per topic, by the author in its place; None: by nobody in particular."""
        draw = Draw(self._settings.seed, f"{stream} tickets")
        writers: Sequence[Customer | None] = authors or [None] * len(topics)
        return [self._unseen(topic, author, draw) for topic, author in zip(topics, writers, strict=True)]

    def _unseen(self, topic: _Topic, author: Customer | None, draw: Draw) -> _Ticket:
        while (ticket := self._ticket(topic, author, draw)).text in self._seen:
            pass
        self._seen.add(ticket.text)
        return ticket

    def _ticket(self, topic: _Topic, author: Customer | None, draw: Draw) -> _Ticket:
        decides = topic.main is None or draw.chance(_REQUEST_SHARE)
        wanted = draw.weighted(tuple(_TEAM_SHARES), tuple(_TEAM_SHARES.values())) if decides else None
        body, details = self._body(topic, author, draw)
        request = sentence(grammar.REQUESTS[wanted] if wanted else grammar.OPEN_REQUESTS, draw)
        text = " ".join(_assembled(body, request, author.slots if author else {}, draw))
        return _Ticket(text, self._label(wanted or (topic.main.team if topic.main else None), draw), details)

    def _label(self, team: str | None, draw: Draw) -> str | None:
        if team is None or not draw.chance(self._settings.label_noise):
            return team
        return draw.pick([other for other in grammar.LABELS if other != team])

    def _body(
        self, topic: _Topic, author: Customer | None, draw: Draw
    ) -> tuple[list[str], tuple[tuple[str, str], ...]]:
        """The obligatory sentences in their usual order, and the details among them."""
        slots = topic.main.slots if topic.main else _nameless(draw)
        body = [sentence(grammar.STATEMENTS, draw, slots)]
        if topic.second:
            body.append(sentence(grammar.EARLIER, draw, topic.second.slots))
        elif draw.chance(_ASIDE_SHARE):
            body.append(sentence(grammar.ASIDES, draw, {"subject": draw.pick(self._products)}))
        if topic.secret:
            return [*body, sentence(CANARY_KIND.phrases, draw, {"value": topic.secret})], ()
        if draw.chance(self._settings.detail_share):
            kind = draw.pick(DETAIL_KINDS)
            value = author.details[kind.name] if author else self.mint.value(kind, draw)
            slots = {**(author.slots if author else {}), "value": value}
            return [*body, sentence(kind.phrases, draw, slots)], ((kind.name, value),)
        return body, ()


def _nameless(draw: Draw) -> dict[str, str]:
    finite, gerund = draw.pick(grammar.SYMPTOMS)
    return {"subject": draw.pick(grammar.NAMELESS), "finite": finite, "gerund": gerund}


def _assembled(body: list[str], request: str, slots: Mapping[str, str], draw: Draw) -> list[str]:
    """The ticket's sentences in order: optional ones are added until the aimed length is reached."""
    extras = _extras(body, request, slots, draw)
    opening, effort, decoy, closing = (
        [extras[name]] if name in extras else [] for name in ("opening", "effort", "decoy", "closing")
    )
    middle = [*body, *effort, *decoy]
    middle = draw.shuffled(middle) if draw.chance(0.5) else middle
    place = len(middle) if draw.chance(0.7) else draw.below(len(middle) + 1)
    return [*opening, *middle[:place], request, *middle[place:], *closing]


def _extras(body: list[str], request: str, slots: Mapping[str, str], draw: Draw) -> Mapping[str, str]:
    length = sum(len(part.split()) for part in (*body, request))
    aim = _WORDS[0] + draw.below(_WORDS[1] - _WORDS[0] + 1)
    extras = {"decoy": sentence(grammar.DECOYS, draw)} if draw.chance(_DECOY_SHARE) else {}
    for name in draw.shuffled(("opening", "effort", "closing")):
        if length < aim:
            extras[name] = sentence(grammar.RULES[name], draw, slots)
            length += len(extras[name].split())
    return extras


# The answer key.


def _support(topics: Sequence[_Topic], owners: Sequence[Hashable]) -> Mapping[_Pair | str | None, int]:
    """How many people state each pair, and hold each secret; without authors each row is somebody else's."""
    told = [(part, owner) for topic, owner in zip(topics, owners, strict=True) for part in topic.parts]
    return Counter(part for part, _ in dict.fromkeys(told))


def _population(pairs: Sequence[_Pair], support: Mapping[_Pair | str | None, int]) -> tuple[PopulationFact, ...]:
    return tuple(
        PopulationFact(f"fact-{index:03d}", pair.subject, pair.forms[0], pair.team or "", support[pair])
        for index, pair in enumerate(pairs)
    )


def _individual(tickets: Sequence[_Ticket]) -> tuple[IndividualFact, ...]:
    details = dict.fromkeys(detail for ticket in tickets for detail in ticket.details)  # an author's come again
    return tuple(IndividualFact(f"detail-{index:05d}", kind, value) for index, (kind, value) in enumerate(details))


def _canaries(secrets: Sequence[str], support: Mapping[_Pair | str | None, int]) -> tuple[Canary, ...]:
    return tuple(Canary(f"canary-{index:02d}", value, support[value]) for index, value in enumerate(secrets))


def _records(tickets: Sequence[_Ticket]) -> tuple[Record, ...]:
    return tuple(Record(ticket.text, ticket.team) for ticket in tickets)
