"""Canaries, black-box attacks that score them by a run's output, and the models made for such a run.

Canaries are invented texts with a fair coin each. The models are an encoder that sees only a text's words, and a
language model that learned nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.files import write_json
from palimpsest.methods.dp_lm.likelihood import encoder_probabilities, record_losses
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.phrases.declaration import PhrasesPrompt
from palimpsest.models.activations import Activations
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm, save_lm
from palimpsest.models.tokens import END, PAD, SEPARATOR, encode_texts, frame_of, pad_right, specials, with_specials
from palimpsest.prediction.prompts import prompter
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.means import unit_rows
from palimpsest.records.evolved import read_evolved
from palimpsest.records.record import Record
from palimpsest.records.write import read_synthetic
from palimpsest_lab.twins.settings import LABEL, PROMPT, TEXT

_HEADS, _TAILS = ("ba", "do", "fe", "gi", "ku", "lo", "ma", "ni", "po", "ra", "se", "tu"), ("lan", "mer", "sok", "tiv")
_BATCH = 512
_LONGEST = 8  # words of a row or a canary
_WIDTH, _CONTEXT = 16, 24  # of the language model: states, and tokens of its longest sequence
_UNKNOWN = "qux"  # stands for every word that the models do not know; an ordinary word, so that texts keep their length


@dataclass(frozen=True, eq=False)
class Canaries:
    """Records that exist only in a test of the privacy code: one for each coin, all different."""

    records: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.records)

    def flip(self) -> np.ndarray:
        """Flip an independent fair coin for each, bool (canaries,), by the operating system's entropy: True is in."""
        return NoiseSource().bernoulli(len(self), 0.5)

    def members(self, coins: np.ndarray) -> list[Record]:
        """The records whose coin says in."""
        return [record for record, inside in zip(self.records, coins, strict=True) if inside]


def invented_words(count: int, seed: int) -> list[str]:
    """Return so many different meaningless words, in an order that depends on the seed.

    >>> invented_words(3, 0)
    ['fetusok', 'logimer', 'dopomer']
    """
    every = ["".join(parts) for parts in product(_HEADS, _HEADS, _TAILS)]
    if len(every) < count:
        raise ValueError(f"there are {len(every)} invented words, got {count} to make")
    return np.random.default_rng(seed).permutation(every)[:count].tolist()


def own_word_canaries(words: Sequence[str], labels: Sequence[str], shared: Sequence[Sequence[str]]) -> Canaries:
    """Make canaries of a word of their own, three times, followed by the words that they share with others."""
    texts = (" ".join([word] * 3 + list(own)) for word, own in zip(words, shared, strict=True))
    return Canaries(tuple(Record(*pair) for pair in zip(texts, labels, strict=True)))


def drawn_word_canaries(words: Sequence[str], labels: Sequence[str], length: int, seed: int) -> Canaries:
    """Canaries of `length` words drawn at random, one for each label that is given."""
    rng = np.random.default_rng(seed)
    texts = (" ".join(rng.choice(words, length).tolist()) for _ in labels)
    return Canaries(tuple(Record(*pair) for pair in zip(texts, labels, strict=True)))


def counterpart(text: str) -> str:
    """Return a public text of the same words in reverse order: equal for an encoder that sees only words.

    >>> counterpart("one one two")
    'two one one'
    """
    return " ".join(reversed(text.split()))


@dataclass(frozen=True)
class Release:
    """Paths of a run's output and of the public models that it started from.

    Attributes:
        rows: path of the synthetic rows, without its suffix.
        model: folder of the fitted model.
        rounds: file of the rounds of embedding evolution.
        base: folder of the public language model.
        encoder: folder of the public sentence encoder.
    """

    rows: Path
    model: Path
    rounds: Path
    base: Path
    encoder: Path


def score_by_loss(release: Release, canaries: Canaries) -> np.ndarray:
    """Score canaries by how far their loss fell from that of the public model (Carlini et al. 2021)."""
    fitted = DpLmArtifact.load(release.model)
    before, _ = new_model(release.base, len(fitted.shares), 0, 0)
    rows = fitted.serialiser()
    base, after = (record_losses(model, rows, canaries.records, _BATCH) for model in (before, fitted.model))
    return base - after


def score_by_label(release: Release, canaries: Canaries) -> np.ndarray:
    """Score canaries by the discriminator's probability of their label."""
    fitted = DpLmArtifact.load(release.model)
    texts = [record.text for record in canaries.records]
    likely = encoder_probabilities(fitted.model.head, Encoder(release.encoder).encode_batch, texts)
    names = list(fitted.shares)
    return likely[np.arange(len(texts)), [names.index(record.label or "") for record in canaries.records]]


def score_by_continuation(release: Release, canaries: Canaries) -> np.ndarray:
    """Score canaries by how likely the words written for their label are, under the public model, after their prompt.

    Mean log-probability of a word in nats, over the label's rows; a label without a row is the least likely to be in.
    Each canary is the only one with its label, and was prompted as `settings.PROMPT` says.
    """
    return _mean_likelihoods(release, canaries, _prompts(load_lm(release.base)[1], canaries), -np.inf)


def score_by_phrases(release: Release, canaries: Canaries) -> np.ndarray:
    """Score canaries by how much likelier the words written for their label are after their phrase than without it.

    Each canary is the only one with its label, was prompted as `phrases` does by default, and its phrase is its first
    word.
    """
    tokenizer, prompt = load_lm(release.base)[1], PhrasesPrompt()

    def likely(template: str) -> np.ndarray:
        told = {record.label: template.replace("{phrases}", record.text.split()[0]) for record in canaries.records}
        heads = {label: frame_of(tokenizer, words, label or "", "", chat=False) for label, words in told.items()}
        return _mean_likelihoods(release, canaries, {label: list(head.before) for label, head in heads.items()}, 0.0)

    return likely(prompt.about) - likely(prompt.plain)


def _mean_likelihoods(
    release: Release, canaries: Canaries, prompts: Mapping[str | None, list[int]], without: float
) -> np.ndarray:
    """Mean log-probability of the words written for each canary's label after its prompt, in nats, or `without`."""
    model, tokenizer = load_lm(release.base)
    rows = read_synthetic(release.rows, TEXT, LABEL)
    words = encode_texts(tokenizer, [row.text for row in rows], _BATCH)
    found: dict[str | None, list[float]] = {label: [] for label in prompts}
    for row, scores in zip(rows, _word_scores(model, [prompts[row.label] for row in rows], words), strict=True):
        found[row.label] += scores
    return np.array([np.mean(found[record.label] or [without]) for record in canaries.records])


def _prompts(tokenizer: PreTrainedTokenizerBase, canaries: Canaries) -> dict[str | None, list[int]]:
    """Label -> the prompt with its one canary."""
    labels = {record.label or "": record.label or "" for record in canaries.records}
    private, public, cut = PROMPT["private"], PROMPT["public"], PROMPT["text_tokens"]
    made = prompter(tokenizer, private, public, labels, chat=False, text_tokens=cut)
    return {record.label: made.contexts(record.label or "", [record.text])[0] for record in canaries.records}


@torch.no_grad()
def _word_scores(
    model: PreTrainedModel, prompts: Sequence[list[int]], words: Sequence[list[int]]
) -> Iterator[list[float]]:
    """Yield for each row the log-probabilities of its words after its prompt, in nats."""
    read = pad_right([[*before, *own] for before, own in zip(prompts, words, strict=True)], 0)
    everywhere = torch.ones_like(read[:, :-1])  # padding follows the text, so causal attention needs no mask
    logits = model(input_ids=read[:, :-1], attention_mask=everywhere).logits  # (rows, time, vocabulary)
    told = logits.log_softmax(dim=-1).gather(2, read[:, 1:, None])[..., 0]
    for before, own, scores in zip(prompts, words, told.tolist(), strict=True):
        yield scores[len(before) - 1 :][: len(own)]


def score_by_states(release: Release, canaries: Canaries) -> np.ndarray:
    """Score canaries by their share in the mean hidden state of their label's rows: least squares over its canaries.

    States are those after the model's first block, each coordinate divided by its standard deviation over the rows.
    """
    model, tokenizer = load_lm(release.base)
    reader = Activations(model, tokenizer, 0, (specials(tokenizer).bos,), _LONGEST)
    rows = read_synthetic(release.rows, TEXT, LABEL)
    states, own = (reader.encode_batch([record.text for record in records]) for records in (rows, canaries.records))
    scale = states.std(axis=0)
    states, own = ((each - each.mean(axis=0)) / scale for each in (states, own))
    scores = np.zeros(len(canaries))
    for label in {record.label for record in canaries.records}:
        places = [place for place, record in enumerate(canaries.records) if record.label == label]
        mean = states[[row.label == label for row in rows]].mean(axis=0)
        scores[places] = np.linalg.lstsq(unit_rows(own[places]).T, mean / np.linalg.norm(mean), rcond=None)[0]
    return scores


def score_by_presence(release: Release, canaries: Canaries, labelled: bool) -> np.ndarray:
    """Return whether each canary's public counterpart is among the rows; if `labelled`, under the canary's label."""
    rows = read_synthetic(release.rows, TEXT, LABEL)
    shown = {(row.text, row.label if labelled else None) for row in rows}
    wanted = ((counterpart(record.text), record.label if labelled else None) for record in canaries.records)
    return np.array([pair in shown for pair in wanted], dtype=np.float64)


def score_by_fields(release: Release, canaries: Canaries) -> np.ndarray:
    """Return how many rows have each canary's fields."""
    named = [name for name, _ in canaries.records[0].fields]
    shown = Counter(row.fields for row in read_synthetic(release.rows, TEXT, LABEL, named))
    return np.array([shown[record.fields] for record in canaries.records], dtype=np.float64)


def score_by_parents(release: Release, canaries: Canaries) -> np.ndarray:
    """Return whether the vector most like each canary was selected in the first round, under the canary's label."""
    first = read_evolved(release.rounds)[0]
    texts = [record.text for record in canaries.records]
    vectors = unit_rows(Encoder(release.encoder).encode_batch(texts))
    scores = np.zeros(len(texts))
    for label, population in first.population.items():
        own = [place for place, record in enumerate(canaries.records) if record.label == label]
        like = (vectors[own] @ unit_rows(population).T).argmax(axis=1)
        scores[own] = np.isin(like, first.parents[label])
    return scores


def save_encoder(words: Sequence[str], folder: Path) -> None:
    """Save an encoder with a direction for each word: a text's vector counts its words, in any order.

    Texts without a word in common are orthogonal, so each canary can have a public text that is near it only.
    """
    directions = np.eye(len(words) + 1, dtype=np.float32)  # the last one for unknown words
    network = StaticEmbedding(_splitter([*words, _UNKNOWN]), embedding_weights=directions)
    made = SentenceTransformer(modules=[network], device="cpu", trust_remote_code=False)
    made.save(str(folder), create_model_card=False)
    write_json(folder / "config.json", {})  # by which a folder is known to hold a model


def save_base(words: Sequence[str], sharpness: float, seed: int, folder: Path) -> None:
    """Save a GPT-2 of one layer with random weights, whose tokens are whole words.

    `sharpness` is the standard deviation of its weight matrices: a large one makes its next word depend on the input.
    """
    listed = [END, PAD, SEPARATOR, *words, _UNKNOWN]
    tokenizer = with_specials(_splitter(listed), _CONTEXT)
    config = GPT2Config(
        vocab_size=len(listed),
        n_positions=_CONTEXT,
        n_embd=_WIDTH,
        n_layer=1,
        n_head=2,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=sharpness,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_lm(GPT2LMHeadModel(config), tokenizer, folder)


def _splitter(words: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer
