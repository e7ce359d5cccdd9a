"""For each method: invented data, the stages that run on them, and a black-box attack on their output.

Each canary is in or out by its own coin, and nothing else differs from run to run. Each scene is made so that a run
without noise gives away nearly every coin: each canary has a public text that is near it only, its own label, or words
that no other has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from palimpsest import extensions
from palimpsest.errors import ParamsError
from palimpsest.records.record import Record
from palimpsest_lab.twins import attacks, settings
from palimpsest_lab.twins.attacks import (
    Canaries,
    Release,
    counterpart,
    drawn_word_canaries,
    invented_words,
    own_word_canaries,
)
from palimpsest_lab.twins.faults import NO_CLIPPING, NO_NOISE, SHRUNK

COINS = 200
GROUP = "palimpsest.twins"  # entry points: method -> its scene, where a package brings a method along
NAME, SOURCE = "audited", "source"  # what is attacked, and what it builds on
_EACH = COINS // 2  # canaries of each of two labels
_TWO = ("North", "South")  # in front of words they make a sentence, as a decoder learns it
_LABELS = COINS // 5  # as many as leave each label more records than there is noise
_BEFORE = 0.1  # epsilon of what only comes first: the claim is that of both

Step = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Scene:
    """One method's audit, without its coins.

    Attributes:
        words: the words that the public models know.
        canaries: the private rows that may be in.
        sections: sections of params.yaml.
        steps: stages that run on the private rows, each with its arguments.
        attack: a run's output -> a score for each canary, larger for "rather in". It never sees a coin.
        public: the public texts.
        before: stages that read only public files, each with its arguments; they run once, before all others.
        faults: the faults whose twins must be caught.
        sharpness: sharpness of the public language model (`models.save_base`).
        always: invented rows that are in, whatever the coins say.
    """

    method: str
    words: tuple[str, ...]
    canaries: Canaries
    sections: dict[str, Any]
    steps: tuple[Step, ...]
    attack: Callable[[Release], np.ndarray]
    public: tuple[str, ...] = ()
    before: tuple[Step, ...] = ()
    faults: tuple[str, ...] = (NO_NOISE,)
    sharpness: float = 0.02
    always: tuple[Record, ...] = ()


def dp_lm(seed: int) -> Scene:
    """A language model with random weights learns texts of random words, from Poisson batches of half of them."""
    words = (*_TWO, *invented_words(300, seed))
    canaries = drawn_word_canaries(words[2:], _TWO * _EACH, 8, seed)
    lm = settings.language_model(settings.EPSILON, epochs=50, batch=COINS // 2, learning_rate=0.02)
    return Scene(
        method="dp_lm",
        words=words,
        canaries=canaries,
        sections=sections(_TWO, {"dp_train": [NAME]}, lms={NAME: lm}),
        steps=(("dp_train", NAME),),
        attack=lambda release: attacks.score_by_loss(release, canaries),
        faults=(NO_NOISE, NO_CLIPPING, SHRUNK),
    )


def discriminator(seed: int) -> Scene:
    """A linear head learns the labels of texts with own words; the language model before it hardly learns anything."""
    words = (*_TWO, *invented_words(COINS, seed))
    drawn = np.random.default_rng(seed).choice(_TWO, COINS).tolist()
    canaries = own_word_canaries(words[2:], drawn, [()] * COINS)
    lm = settings.language_model(_BEFORE, epochs=1, batch=COINS, learning_rate=0.001)
    head = settings.discriminator(epochs=30, batch=COINS, learning_rate=0.02)
    run = {"dp_train": [SOURCE], "discriminator": {NAME: SOURCE}}
    return Scene(
        method="discriminator",
        words=words,
        canaries=canaries,
        sections=sections(_TWO, run, lms={SOURCE: lm}, discriminators={NAME: head}),
        steps=(("dp_train", SOURCE), ("discriminator", NAME, SOURCE)),
        attack=lambda release: attacks.score_by_label(release, canaries),
        faults=(NO_NOISE, NO_CLIPPING, SHRUNK),
    )


def predict(seed: int) -> Scene:
    """Each canary is the only one with its label, so its batch continues from it or from nothing."""
    words = invented_words(COINS + 101, seed)
    labels, others = words[1 : COINS + 1], words[COINS + 1 :]  # not the first: without scores it is always the largest
    canaries = drawn_word_canaries(others, labels, 6, seed)
    return Scene(
        method="predict",
        words=tuple(words),
        canaries=canaries,
        sections=sections(labels, {"private_predict": {NAME: "base"}}, variants={NAME: settings.predict(4)}),
        steps=(("private_predict", NAME, "base"),),
        attack=lambda release: attacks.score_by_continuation(release, canaries),
        faults=(NO_NOISE, NO_CLIPPING),
        sharpness=1.0,
    )


def phrases(seed: int) -> Scene:
    """Each canary has a word and a label of its own, and the word needs one more record to come out without noise."""
    words = invented_words(2 * COINS + 1, seed)
    own, labels = words[1 : COINS + 1], words[COINS + 1 :]
    canaries = own_word_canaries(own, labels, [()] * COINS)
    enough = settings.enough_phrases()
    return Scene(
        method="phrases",
        words=tuple(words),
        canaries=canaries,
        sections=sections(
            labels, {"phrases": [NAME]}, n_public=enough * COINS, variants={NAME: settings.phrases(COINS)}
        ),
        steps=(("phrases", NAME),),
        attack=lambda release: attacks.score_by_phrases(release, canaries),
        sharpness=1.0,
        always=canaries.records * (enough - 1),
    )


def select(seed: int) -> Scene:
    """Half of the public texts are chosen; each is like one canary, and like no description."""
    return _choice_scene(
        "select",
        seed,
        {"select": [NAME]},
        {NAME: settings.variant("select", rows=COINS // 2, domain=1.0, most=1.0, **settings.COUNTED)},
        (("select", NAME),),
        described=False,
    )


def steer(seed: int) -> Scene:
    """Five canaries with a word of their own share a label, and the kept texts lie near some of them."""
    words = invented_words(COINS + _LABELS + 1, seed)
    labels = words[1 : _LABELS + 1]
    canaries = own_word_canaries(words[_LABELS + 1 :], labels * (COINS // _LABELS), [()] * COINS)
    asked = settings.steer(rows=4 * COINS, pool=5, domain=0.02)
    return Scene(
        method="steer",
        words=tuple(words),
        canaries=canaries,
        sections=sections(labels, {"steer": [NAME]}, variants={NAME: asked}),
        steps=(("steer", NAME),),
        attack=lambda release: attacks.score_by_states(release, canaries),
        sharpness=0.05,
    )


def evolve(seed: int) -> Scene:
    """Public texts, half of them brought in as neighbours of the others, are voted for in two rounds."""
    asked = settings.evolve(settings.EPSILON, rows=COINS // 2, rounds=2, expand=2)
    run, steps = {"private_evolve": {NAME: "corpus"}}, (("private_evolve", NAME, "corpus"),)
    return _choice_scene("evolve", seed, run, {NAME: asked}, steps)


def vote_select(seed: int) -> Scene:
    """A first evolution keeps all public texts, whatever its votes say; the vote after it keeps half of them."""
    run = {"private_evolve": {SOURCE: "corpus"}, "vote_select": {NAME: SOURCE}}
    everything = settings.evolve(_BEFORE, rows=COINS, rounds=1, expand=1)
    variants = {SOURCE: everything, NAME: settings.variant("vote_select", keep=0.5, votes=settings.VOTES)}
    steps = (("private_evolve", SOURCE, "corpus"), ("vote_select", NAME, SOURCE))
    return _choice_scene("vote_select", seed, run, variants, steps)


def restate(seed: int) -> Scene:
    """A first evolution keeps all public texts; each names one canary's word, and keeps it where its count is positive.

    The words are a public list, and labels are ignored: the count of a word that is in is 1 without noise.
    """
    scene = vote_select(seed)
    values: dict[str, list[str]] = {record.text.split()[0]: [] for record in scene.canaries.records}
    asked: dict[str, Any] = {"attributes": {"word": {"values": values}}, "label_share": 0.0, "false_cells": COINS}
    variants = {SOURCE: scene.sections["variants"][SOURCE], NAME: settings.variant("restate", **asked)}
    run = {"private_evolve": {SOURCE: "corpus"}, "restate": {NAME: SOURCE}, "evaluate": list(variants)}
    steps = (*scene.steps[:-1], ("restate", NAME, SOURCE))
    return replace(scene, method="restate", sections=scene.sections | {"run": run, "variants": variants}, steps=steps)


def tabulate(seed: int) -> Scene:
    """A first evolution keeps all public texts; beside them stand values of a field, and each canary has its own."""
    scene = vote_select(seed)
    own = [record.text.split()[0] for record in scene.canaries.records]
    named = zip(scene.canaries.records, own, strict=True)
    canaries = Canaries(tuple(replace(record, fields=(("word", word),)) for record, word in named))
    variants = {SOURCE: scene.sections["variants"][SOURCE], NAME: settings.variant("tabulate")}
    run = {"private_evolve": {SOURCE: "corpus"}, "tabulate": {NAME: SOURCE}, "evaluate": list(variants)}
    data = scene.sections["dataset"] | {"fields": {"word": own}}
    return replace(
        scene,
        method="tabulate",
        canaries=canaries,
        sections=scene.sections | {"dataset": data, "run": run, "variants": variants},
        steps=(*scene.steps[:-1], ("tabulate", NAME, SOURCE)),
        attack=lambda release: attacks.score_by_fields(release, canaries),
    )


def embed(seed: int) -> Scene:
    """Half of the vectors of public texts become parents in the first of two rounds."""
    words, labels = (*_TWO, *invented_words(COINS, seed)), _TWO * _EACH
    canaries = own_word_canaries(words[2:], labels, [(label,) for label in labels])
    run = {"decoder_pretrain": ["small"], "eda_evolve": {NAME: "small"}}
    asked = settings.embed(rows=4, rounds=2, start=_EACH, offspring=_EACH, parents=_EACH // 2)
    return Scene(
        method="embed",
        words=words,
        canaries=canaries,
        public=counterparts(canaries),
        sections=sections(_TWO, run, variants={NAME: asked}, decoders={"small": settings.decoder()}),
        before=(("encode_public",), ("decoder_pretrain", "small")),
        steps=(("eda_evolve", NAME, "small"),),
        attack=lambda release: attacks.score_by_parents(release, canaries),
    )


def fewshot(seed: int) -> Scene:
    """Build a scene in which each canary is the only record of its label, in every prompt.

    Each token continues from the canary or from nothing.
    """
    scene = predict(seed)
    variants = {NAME: _fewshot(4)}
    return replace(scene, method="fewshot", sections={**scene.sections, "variants": variants}, faults=(NO_NOISE,))


def _fewshot(tokens: int) -> settings.Section:
    """Return a variant of `fewshot` that writes one row of so many tokens from one prompt of one record."""
    return settings.variant(
        "fewshot", rows=1, prompts=1, shots=1, top_k=512, max_tokens=tokens, micro_batch=1, checkpoint_tokens=tokens,
        prompt={"head": settings.PROMPT["public"], "text_tokens": settings.PROMPT["text_tokens"]},
        filters=settings.NO_FILTERS,
    )  # fmt: skip


def sentdp(seed: int) -> Scene:
    """Build a scene in which each canary is the only record of its label.

    The public text that is like the canary has depth 1, every other one 0.
    """
    words = invented_words(2 * COINS + 1, seed)
    labels = words[1 : COINS + 1]
    canaries = own_word_canaries(words[COINS + 1 :], labels, [(words[0],)] * COINS)
    variants, room = {NAME: settings.variant("sentdp", rows=COINS, directions=20, **settings.COUNTED)}, 10 * COINS
    return Scene(
        method="sentdp",
        words=tuple(words),
        canaries=canaries,
        public=(words[0], *counterparts(canaries)),  # of equally deep texts the first is picked, which is no canary's
        sections=sections(labels, {"sentdp": [NAME]}, n_public=room, variants=variants),
        before=(("encode_public",),),
        steps=(("sentdp", NAME),),
        attack=lambda release: attacks.score_by_presence(release, canaries, labelled=True),
    )


SCENES: Mapping[str, Callable[[int], Scene]] = {
    scene.__name__: scene
    for scene in (
        dp_lm,
        discriminator,
        predict,
        phrases,
        select,
        steer,
        evolve,
        vote_select,
        restate,
        tabulate,
        embed,
        fewshot,
        sentdp,
    )
}


def scene_of(method: str) -> Callable[[int], Scene]:
    """Return a method's scene as a function of a seed: one of `SCENES`, or from a package that brings the method.

    Raises:
        ParamsError: the method has no scene.
    """
    others = extensions.find_entries(GROUP)
    known = [*SCENES, *others]
    if method not in known:
        raise ParamsError(
            f"There is no end-to-end audit of {method!r}.",
            f"Choose one of {', '.join(known)}; a package brings that of its own method as an entry point of {GROUP}.",
        )
    return SCENES.get(method) or extensions.load(others[method])


def _choice_scene(
    method: str,
    seed: int,
    run: Mapping[str, Any],
    variants: Mapping[str, Any],
    steps: tuple[Step, ...],
    *,
    described: bool = True,
) -> Scene:
    """Return the scene of a method whose rows are public texts: a canary was in if its counterpart is among them.

    Every second canary of a label shares a word with the next one, whose counterpart is therefore the nearest neighbour
    of its own. Where some are `described` it also names the label, so its counterpart is nearest to the description.
    """
    words = (*_TWO, *invented_words(COINS + COINS // 2, seed))
    own, pairs = words[2 : 2 + COINS], words[2 + COINS :]
    labels = [label for label in _TWO for _ in range(_EACH)]
    named = [labels[place : place + 1 - place % 2] if described else () for place in range(COINS)]
    shared = [(pairs[place // 2], *own_label) for place, own_label in enumerate(named)]
    canaries = own_word_canaries(own, labels, shared)
    authors = {"corpus": {"kind": "corpus", "neighbours": 1}}
    return Scene(
        method=method,
        words=words,
        canaries=canaries,
        public=counterparts(canaries),
        sections=sections(_TWO, run, variants=variants, authors=authors),
        before=(("encode_public",),),
        steps=steps,
        attack=lambda release: attacks.score_by_presence(release, canaries, labelled=False),
    )


def sections(
    labels: Sequence[str], run: Mapping[str, Any], n_public: int = COINS, **named: Mapping[str, Any]
) -> dict[str, Any]:
    """Sections of params.yaml, for labels that are their own descriptions."""
    described = {label: label for label in labels}
    evaluated = {"evaluate": list(named.get("variants", {}))}
    return {"dataset": settings.dataset(described, n_public), "run": {**run, **evaluated}, **named}


def counterparts(canaries: Canaries) -> tuple[str, ...]:
    """The public text that is like each canary."""
    return tuple(counterpart(record.text) for record in canaries.records)
