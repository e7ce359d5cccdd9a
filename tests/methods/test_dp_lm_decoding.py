"""Each text is drawn as the model itself would draw it, whatever is written beside it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig

from palimpsest.methods.dp_lm import guidance
from palimpsest.methods.dp_lm.decoding import Past, PlainWalk, StepDraw, begin, uniforms, write
from palimpsest.methods.dp_lm.model import ConditionalLm, HeadShape, new_head
from palimpsest.methods.dp_lm.sampling import walk_of
from palimpsest.models.tokens import Specials
from palimpsest.models.writing import draw
from tests.families import FAMILIES, family
from tests.methods.blind_models import (
    LABELS,
    blind_model,
    chosen,
    control_of,
    next_log_probs,
    prompts_of,
    share_that_says,
)
from tests.prediction.tiny import EVERY
from tests.prediction.tiny import model as tiny

IDS = Specials(bos=0, sep=2, eos=0, pad=1, control=frozenset({0, 1, 2}))
NEAR = {"atol": 1e-4, "rtol": 0.0}
PROBS = [0.1, 0.5, 0.25, 0.15]


@pytest.fixture(scope="module")
def blind(base):
    return blind_model(base, "both")


@torch.no_grad()
def test_a_plain_walk_has_the_models_own_distribution(blind) -> None:
    """Prompts are padded on the left; after three tokens one text is dropped."""
    model, rows = blind
    prompts, texts, banned = prompts_of(rows), [[] for _ in range(4)], control_of(rows.ids)
    assert len({len(prompt) for prompt in prompts}) > 2
    walk, left = PlainWalk(model, prompts, rows.ids.pad, 0.7), [0, 1, 2, 3]
    for step in range(6):
        noted: list[torch.Tensor] = []
        tokens = [20 + 7 * step + 31 * row for row in left]
        assert walk.step(chosen(tokens, banned, noted)).tolist() == tokens
        for row, found in zip(left, noted[0], strict=True):
            torch.testing.assert_close(found, next_log_probs(model, prompts[row], texts[row], banned, 0.7), **NEAR)
        for row, token in zip(left, tokens, strict=True):
            texts[row].append(token)
        if step == 2:
            walk.keep(torch.tensor([0, 2, 3]))
            left = [0, 2, 3]


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "pplm", "fudge", "fudge_state"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_is_drawn_from_as_it_is(kind: str, variant: str, make_generate) -> None:
    """Unsteered, behind prompts of two lengths and beyond a window of three tokens."""
    model = drawn_from(kind)
    prompts, texts, how = [[0, 9, 10, 2], [0, 2]], [[], []], make_generate(iterations=0, strength=0.0, candidates=70)
    walk = walk_of(variant, model, prompts, [0, 1], IDS, how)
    for step in range(5):
        noted: list[torch.Tensor] = []
        tokens = walk.step(chosen([step, 3 * step + 1], [], noted)).tolist()
        for row, found in enumerate(noted[0]):
            wanted = next_log_probs(model, prompts[row], texts[row], [])
            ordered = found.sort().values if "fudge" in variant else found
            torch.testing.assert_close(ordered, wanted.sort().values if "fudge" in variant else wanted, **NEAR)
            texts[row].append(tokens[row])


@torch.no_grad()
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_reads_soft_tokens_as_it_reads_tokens(kind: str) -> None:
    """A soft token that is surely one token is that token: PPLM looks ahead by them."""
    model, tokens = drawn_from(kind), torch.tensor([[5, 7, 9]])
    hidden = model.lm.base_model(inputs_embeds=model.read(model.embedding[tokens])).last_hidden_state
    torch.testing.assert_close(hidden, model.hidden(tokens), **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("kind", EVERY)
def test_every_family_is_steered_by_its_past(kind: str, make_generate) -> None:
    """Behind prompts of two lengths and beyond a window: towards the label, and each text as it would be alone."""
    model, how = drawn_from(kind), make_generate(iterations=2, step_size=0.01, kl_scale=0.0, horizon=1)
    still, prompts, tokens = how.model_copy(update={"iterations": 0}), [[0, 9, 10, 2], [0, 2]], [[7, 8, 9], [11, 5, 6]]

    def steered(rows: list[int]) -> tuple[guidance.State, Past]:
        state = guidance.start(model, [prompts[row] for row in rows], rows, IDS.pad)
        for step in range(3):
            state, _ = guidance.next_token(model, state, how if step else still)
            state = replace(state, last=torch.tensor([tokens[row][step] for row in rows]))
        return state, guidance.perturb(model, state, guidance.next_token(model, state, still)[1], how)

    state, moved = steered([0, 1])
    plain = torch.zeros(2, len(model.embedding))
    before, after = (guidance.look_ahead(model, state, past, plain, how)[0] for past in (state.steered, moved))
    assert (after > before)[[0, 1], [0, 1]].all()
    for row in range(2):
        for found, alone in zip(moved, steered([row])[1], strict=True):
            for one, other in zip(found, alone, strict=True):
                torch.testing.assert_close(one[row, :, -other.shape[2] :], other[0], atol=1e-3, rtol=0.0)


def drawn_from(kind: str) -> ConditionalLm:
    """A small random model of a family, with a fresh head."""
    lm = family(kind, 70, 8, 32) if kind in FAMILIES else tiny(kind)
    width = lm.get_input_embeddings().weight.shape[1]
    return ConditionalLm(lm, new_head(HeadShape("both", 2 * width, 0, 2), 1), 1.0).eval()


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "pplm", "fudge", "fudge_state"])
def test_a_text_is_the_same_alone_and_beside_others_that_end_earlier(blind, make_generate, variant: str) -> None:
    model, rows = blind
    how = make_generate(temperature=1.5, top_p=1.0, max_tokens=12, step_size=0.2, strength=2.0)
    prompts = [prompt for prompt in prompts_of(rows) for _ in range(3)]
    targets = [number % 2 for number in range(len(prompts))]
    coins = np.stack([uniforms(4, 0, number, how.max_tokens) for number in range(len(prompts))])
    together = write(walk_of(variant, model, prompts, targets, rows.ids, how), rows.ids, how, coins)
    assert len({len(text) for text in together}) > 1
    for row, prompt in enumerate(prompts):
        walk = walk_of(variant, model, [prompt], targets[row : row + 1], rows.ids, how)
        assert write(walk, rows.ids, how, coins[row : row + 1]) == [together[row]]


@torch.no_grad()
def test_the_likeliest_tokens_are_those_of_the_librarys_own_greedy_search(blind, make_generate) -> None:
    model, rows = blind
    prompts, ids = prompts_of(rows), rows.ids
    how = make_generate(top_k=1)
    walk = walk_of("plain", model, prompts, [0] * 4, ids, how)
    found = write(walk, ids, how, np.zeros((4, 14)))
    rules = GenerationConfig(
        do_sample=False, max_new_tokens=14, eos_token_id=ids.eos, pad_token_id=ids.pad,
        suppress_tokens=control_of(ids), begin_suppress_tokens=[ids.eos],
    )  # fmt: skip
    for prompt, text in zip(prompts, found, strict=True):
        tokens = torch.tensor([prompt])
        greedy = model.lm.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=rules)
        assert _until(greedy[0, len(prompt) :].tolist(), ids.eos) == text
    assert any(len(text) < 14 for text in found)


def test_texts_end_at_eos_or_the_maximum_and_hold_no_control_token(blind, make_generate) -> None:
    model, rows = blind
    how = make_generate(temperature=30.0, top_p=1.0)  # all tokens are nearly as likely
    coins = np.stack([uniforms(1, 0, number, 12) for number in range(300)])
    walk = walk_of("plain", model, [rows.prompt(LABELS[0])] * 300, [0] * 300, rows.ids, how)
    texts = write(walk, rows.ids, how, coins)
    assert {len(text) for text in texts} <= set(range(1, 13))
    assert len({len(text) for text in texts}) > 1
    assert max(len(text) for text in texts) == 12
    assert not {token for text in texts for token in text} & {rows.ids.eos, *rows.ids.control}
    assert len({token for text in texts for token in text}) > 250


class Scripted:
    """Texts that are written already: each row says its own next token, and checks what it is told."""

    def __init__(self, script: np.ndarray, coins: np.ndarray, ids: Specials) -> None:
        self._script, self._coins, self._ids = script, torch.from_numpy(coins), ids
        self._rows, self._step = torch.arange(len(script)), 0

    def step(self, draw: StepDraw) -> torch.Tensor:
        """The next token of each row."""
        first = {self._ids.eos} if self._step == 0 else set()
        assert set(draw.banned.tolist()) == (self._ids.control - {self._ids.eos}) | first
        assert torch.equal(draw.uniforms, self._coins[self._rows, self._step])
        self._step += 1
        return torch.from_numpy(self._script)[self._rows, self._step - 1]

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with some."""
        assert 0 < len(rows) < len(self._rows)
        self._rows = self._rows[rows]


@given(st.integers(1, 20), st.integers(1, 9), st.sampled_from([0.02, 0.3, 0.8]), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_text_gets_its_own_tokens_and_coins(
    make_generate, texts: int, steps: int, ends: float, seed: int
) -> None:
    """However many texts end at once, and wherever."""
    random = np.random.default_rng(seed)
    script = np.where(random.random((texts, steps)) < ends, IDS.eos, random.integers(3, 99, (texts, steps)))
    script[:, 0] = random.integers(3, 99, texts)
    coins = random.random((texts, steps))
    found = write(Scripted(script, coins, IDS), IDS, make_generate(), coins)
    assert found == [_until(row, IDS.eos) for row in script.tolist()]


def test_banned_tokens_have_no_probability_and_the_others_share_it() -> None:
    draw = StepDraw(torch.zeros(1), torch.tensor([1, 3]), 0, 1.0)
    found = draw.mask_banned(torch.tensor([PROBS]).log()).exp()
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.0, 0.25, 0.0]]) / 0.35)


@pytest.mark.parametrize(
    ("top_k", "top_p", "wanted"),
    [
        (0, 1.0, PROBS),
        (0, 0.7, [0, 0.5, 0.25, 0]),
        (0, 0.49, [0, 0.5, 0, 0]),
        (0, 0.51, [0, 0.5, 0.25, 0]),
        (2, 1.0, [0, 0.5, 0.25, 0]),
        (9, 1.0, PROBS),
        (3, 0.85, [0, 0.5, 0.25, 0.15]),  # of the three likeliest the first two have 0.83
        (3, 0.8, [0, 0.5, 0.25, 0]),
        (1, 0.1, [0, 1, 0, 0]),
    ],
)
def test_nucleus_draws_in_proportion_from_the_smallest_set(top_k: int, top_p: float, wanted: list[float]) -> None:
    grid = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    drawn = draw(torch.tensor(PROBS).double().log().expand(10_000, 4), top_p, grid, top_k)
    counts = torch.bincount(drawn, minlength=4) / 10_000
    expected = torch.tensor(wanted).double()
    torch.testing.assert_close(counts.double(), expected / expected.sum(), atol=2e-4, rtol=0)


def test_each_text_has_its_own_stream() -> None:
    streams = [uniforms(seed, label, number, 4) for seed in (3, 4) for label in (0, 1) for number in (0, 1, 2**32)]
    assert len(np.unique(streams)) == 4 * len(streams)
    np.testing.assert_array_equal(uniforms(3, 1, 5, 9)[:4], uniforms(3, 1, 5, 4))
    assert 0 <= np.min(streams) < np.max(streams) < 1


@pytest.mark.parametrize("variant", ["pplm", "fudge", "fudge_state"])
def test_steered_texts_carry_their_label_more_often(blind, make_generate, variant: str) -> None:
    """The prompt says nothing, so only steering can."""
    model, rows = blind
    labels = [0, 1] * 40
    prompts = [[rows.ids.bos, int(rows.ordinary[0]), rows.ids.sep]] * len(labels)
    how = make_generate(iterations=3, step_size=0.3, kl_scale=0.0, gm_scale=1.0, candidates=8, strength=3.0)
    coins = np.stack([uniforms(1, 0, number, 12) for number in range(len(labels))])
    shares = {}
    for name in ("plain", variant):
        texts = write(walk_of(name, model, prompts, labels, rows.ids, how), rows.ids, how, coins)
        shares[name] = share_that_says(rows.tokenizer.batch_decode(texts), labels)
    assert shares[variant] > shares["plain"] + 0.2, shares


@pytest.mark.parametrize("variant", ["plain", "pplm", "fudge", "fudge_state"])
def test_a_walk_keeps_no_gradients_of_its_prompts(blind, make_generate, variant: str) -> None:
    """The model's weights may want gradients: what was computed from them must not stay in memory for it."""
    model, rows = blind
    assert model.embedding.requires_grad
    walk = walk_of(variant, model, prompts_of(rows), [0] * 4, rows.ids, make_generate())
    kept = [value for value in vars(walk).values() if isinstance(value, torch.Tensor)]
    past = begin(model, prompts_of(rows), rows.ids.pad)[1]
    assert not any(tensor.requires_grad for tensor in [*kept, *(each for layer in past for each in layer)])


def _until(tokens: Sequence[int], eos: int) -> list[int]:
    tokens = list(tokens)
    return tokens[: tokens.index(eos)] if eos in tokens else tokens
