"""Scenes of the lab's methods, for their end-to-end audits."""

from dataclasses import replace

from palimpsest.twins import attacks, settings
from palimpsest.twins.attacks import invented_words, own_word_canaries
from palimpsest.twins.faults import NO_NOISE
from palimpsest.twins.scenes import COINS, NAME, Scene, counterparts, predict, sections


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
