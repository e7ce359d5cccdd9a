"""The network predicts what it is trained to predict, and writes by the same probabilities."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from palimpsest.models.decoder import network as network_module
from palimpsest.models.decoder.network import Network
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import DecodeSettings
from palimpsest.models.tokens import Specials, encode_texts, specials
from tests.families import family
from tests.models.decoder.toy import DIMENSION, encode, sentences

GREEDY = DecodeSettings(samples=1, corrections=0, temperature=1.0, top_p=1e-9, max_tokens=12, batch=8)
NONE = torch.empty(0, dtype=torch.long)


def restless(network: Network) -> Network:
    """Every weight of the maps is something else than at the beginning."""
    coins = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if not name.startswith("lm."):
                weight.add_(0.1 * torch.randn(weight.shape, generator=coins))
        network.centre.copy_(0.1 * torch.randn(network.reads, generator=coins))
    return network.eval()


@pytest.fixture(scope="module")
def ids(base: Path) -> Specials:
    return specials(load_lm(base)[1])


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma2"])
def network(request: pytest.FixtureRequest, base: Path, ids: Specials) -> Network:
    if request.param == "gpt2":
        return restless(Network(load_lm(base)[0], ids, DIMENSION, 2, 16))
    if request.param == "gemma2":  # its logits are capped
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return restless(Network(family("gemma2", 320, 32, 40), ids, DIMENSION, 2, 16))
    config = LlamaConfig(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=40, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return restless(Network(LlamaForCausalLM(config).eval(), ids, DIMENSION, 2, 16))


@torch.no_grad()
def spelt_out(
    network: Network, ids: Specials, vector: torch.Tensor, text: list[int], earlier: list[int] | None = None
) -> torch.Tensor:
    """Logits at each predicted position, one position after another: (T + 1, vocabulary)."""
    filled = torch.tensor([*(earlier or []), *[ids.eos] * network.earlier][: network.earlier], dtype=torch.long)
    read = (vector - network.centre) * DIMENSION**0.5
    table, worth, found = network.lm.get_input_embeddings(), network.words(read), []
    for length in range(len(text) + 1):
        tokens = table(torch.tensor([ids.bos, *text[:length]])) + network.everywhere(read)
        inputs = torch.cat([table(filled) + network.everywhere(read), network.pseudo(read).view(2, -1), tokens])[None]
        hidden = network.lm.base_model(inputs_embeds=inputs).last_hidden_state[0, -1]
        left = worth.clone()
        left[list(set(text[:length]))] *= 1.0 - network.spent
        logits, cap = (
            network.lm.get_output_embeddings()(hidden),
            getattr(network.lm.config, "final_logit_softcapping", None),
        )
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        found.append(logits + network.trust(hidden) * left)
    return torch.stack(found)


def some_texts(base: Path) -> tuple[torch.Tensor, list[list[int]]]:
    """Texts of unequal length, with tokens that occur twice and three times, and their embeddings."""
    texts = [*sentences()[1][:3], "The lamp hums in the lamp in the lamp.", "The"]
    return torch.from_numpy(encode(texts)), encode_texts(load_lm(base)[1], texts, 20)


def test_the_loss_is_that_of_each_text_by_itself(network: Network, ids: Specials, base: Path, monkeypatch) -> None:
    """Also where the logits of two texts at most are there together."""
    vectors, texts = some_texts(base)
    losses = []
    for vector, text in zip(vectors, texts, strict=True):
        logits = spelt_out(network, ids, vector, text)
        losses.append(functional.cross_entropy(logits, torch.tensor([*text, ids.eos]), reduction="none"))
    assert any(len(set(text)) < len(text) for text in texts)
    with torch.no_grad():
        assert float(network.loss(vectors, texts)) == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
        monkeypatch.setattr(network_module, "MOST_LOGITS", 2 * (max(map(len, texts)) + 1) * network.words.out_features)
        assert float(network.loss(vectors, texts)) == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)


def test_a_corrector_reads_another_text_and_its_embedding_too(network: Network, ids: Specials, base: Path) -> None:
    """Each text by itself again, behind an earlier one that is shorter or longer than the room for it."""
    vectors, texts = some_texts(base)
    fixer, earlier = restless(network.corrector(16, 8)), texts[::-1]
    assert {len(text) < 8 for text in earlier} == {True, False}
    given = torch.cat([vectors, vectors.flip(0)], dim=1)
    each = [spelt_out(fixer, ids, *one) for one in zip(given, texts, earlier, strict=True)]
    wanted = [torch.tensor([*text, ids.eos]) for text in texts]
    losses = [functional.cross_entropy(*pair, reduction="none") for pair in zip(each, wanted, strict=True)]
    with torch.no_grad():
        assert float(fixer.loss(given, texts, earlier)) == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
    greedy = fixer.write(given, [[]] * 5, np.full((5, 1), 0.5), torch.tensor([ids.eos]), GREEDY, earlier)
    for text, logits in zip(greedy, each, strict=True):
        logits[0, ids.eos] = -torch.inf
        assert text == [int(logits[0].argmax())]


def test_a_corrector_begins_as_its_decoder_and_leaves_it_alone(network: Network, ids: Specials, base: Path) -> None:
    vectors, _ = some_texts(base)
    before, coins = {name: value.clone() for name, value in network.state_dict().items()}, torch.random.get_rng_state()
    fixer = network.corrector(16, 8)
    assert torch.equal(coins, torch.random.get_rng_state())
    read = fixer.scale(torch.cat([vectors, vectors.flip(0)], dim=1))
    for name in ("words", "everywhere", "pseudo"):
        ours, its = getattr(network, name)(network.scale(vectors)), getattr(fixer, name)(read)
        torch.testing.assert_close(its, ours)
    restless(fixer)
    with torch.no_grad():
        next(iter(fixer.lm.parameters())).add_(1.0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_it_writes_the_likeliest_token_when_nothing_else_may_be_drawn(
    network: Network, ids: Specials, base: Path
) -> None:
    """With what it has written, the cache and the row's neighbours taken into account."""
    vectors, texts = some_texts(base)
    begun = [[], texts[1][:2], [], texts[3], []]
    banned = torch.tensor([texts[0][0]])
    written = network.write(vectors, begun, np.full((5, 12), 0.5), banned, GREEDY)
    assert len(set(map(len, written))) > 1 or all(len(text) == 12 for text in written)
    for vector, first, text in zip(vectors, begun, written, strict=True):
        assert text[: len(first)] == first[:12]
        logits = spelt_out(network, ids, vector, text)
        logits[:, banned] = -torch.inf
        logits[0, ids.eos] = -torch.inf
        likeliest = logits.argmax(dim=1).tolist()
        assert text[len(first) :] == likeliest[len(first) : len(text)]
        assert len(text) == 12 or likeliest[len(text)] == ids.eos


def test_a_text_goes_on_the_same_when_others_have_ended(network: Network, ids: Specials) -> None:
    """Texts that end at different places, written together and each alone."""
    vectors = torch.from_numpy(encode(sentences()[1][:12]))
    coins = np.random.default_rng(2).random((12, 12))
    hot = DecodeSettings(samples=1, corrections=0, temperature=3.0, top_p=1.0, max_tokens=12, batch=8)
    with torch.no_grad():
        network.words.bias[ids.eos] += 9.0
        together = network.write(vectors, [[]] * 12, coins, NONE, hot)
        alone = [network.write(vectors[[row]], [[]], coins[[row]], NONE, hot)[0] for row in range(12)]
        network.words.bias[ids.eos] -= 9.0
    assert len(set(map(len, together))) > 3
    assert together == alone


def test_drawn_tokens_have_the_probability_of_the_logits(network: Network, ids: Specials) -> None:
    """First tokens of many rows with evenly spread coins, at a temperature."""
    vector, rows = torch.from_numpy(encode(["The lamp hums."])), 4000
    warm = DecodeSettings(samples=1, corrections=0, temperature=1.7, top_p=1.0, max_tokens=1, batch=8)
    coins = ((np.arange(rows) + 0.5) / rows)[:, None]
    written = network.write(vector.expand(rows, -1), [[]] * rows, coins, NONE, warm)
    logits = spelt_out(network, ids, vector[0], [])[0] / 1.7
    logits[ids.eos] = -torch.inf
    found = np.bincount([text[0] for text in written], minlength=len(logits)) / rows
    np.testing.assert_allclose(found, logits.softmax(dim=0).numpy(), atol=2.0 / rows)


def test_the_embedding_matters_in_all_three_ways(network: Network, base: Path) -> None:
    """Pseudo tokens, every position, and words: each alone changes what is predicted."""
    vectors, texts = some_texts(base)
    with torch.no_grad():
        whole = float(network.loss(vectors, texts))
        for part in (network.pseudo, network.everywhere, network.words, network.trust):
            kept = {name: weight.clone() for name, weight in part.named_parameters()}
            for weight in part.parameters():
                weight.zero_()
            assert abs(float(network.loss(vectors, texts)) - whole) > 1e-6 * whole
            part.load_state_dict(kept)
        assert float(network.loss(vectors, texts)) == whole


def test_every_weight_learns(network: Network, base: Path) -> None:
    network.loss(*some_texts(base)).backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert float(weight.grad.abs().max()) > 0.0, name
    network.zero_grad()
