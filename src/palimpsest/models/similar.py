"""Teaching a base model what instruction-tuned ones know: to go on with a text like the last. Public text only."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from palimpsest.models.lm import load_lm, save_lm, train
from palimpsest.models.settings import Similar
from palimpsest.models.tokens import encode_texts, specials

_SAME = 0.95  # cosine from which two texts say the same
_BLOCK = 1024  # rows of the similarity matrix that are in memory at once


def neighbours(embeddings: np.ndarray, labels: Sequence[str], count: int) -> np.ndarray:
    """The `count` nearest texts of the same label for each text, but for near copies; int64 (n, count), -1 for none.

    Args:
        embeddings: shape (n, d), L2 norm 1.
        labels: one for each text.
        count: neighbours wanted.
    """
    kinds = np.unique(np.asarray(labels), return_inverse=True)[1]
    found = np.full((len(embeddings), count), -1, dtype=np.int64)
    for start in range(0, len(embeddings), _BLOCK):
        rows = slice(start, start + _BLOCK)
        similarity = embeddings[rows] @ embeddings.T
        similarity[(kinds[rows, None] != kinds[None, :]) | (similarity > _SAME)] = -np.inf
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :count]
        usable = np.isfinite(np.take_along_axis(similarity, best, axis=1))
        found[rows, : best.shape[1]] = np.where(usable, best, -1)
    return found


def learn_similar(
    folder: Path, texts: Sequence[str], labels: Sequence[str], pairs: np.ndarray, settings: Similar, seed: int
) -> None:
    """Train the model in `folder` on `BOS label SEP neighbour SEP text EOS` and `BOS label SEP text EOS`, in place.

    So a model that reads a record behind its label goes on with a text like it, and without one with any of the label:
    the private and the public prompt of private prediction, `{label}{separator}{text}{separator}` and
    `{label}{separator}`.

    Args:
        folder: a Hugging Face folder.
        texts: public texts.
        labels: one for each; "" where the task has none.
        pairs: `neighbours` of the texts.
        seed: order of the rows.
    """
    model, tokenizer = load_lm(folder)
    ids, context = specials(tokenizer), model.config.get_text_config().max_position_embeddings
    prompts = {label: [ids.bos, *tokenizer.encode(label, add_special_tokens=False), ids.sep] for label in set(labels)}
    encoded = encode_texts(tokenizer, texts, settings.max_tokens)
    rows = []
    for index, (label, text) in enumerate(zip(labels, encoded, strict=True)):
        before = [encoded[other] for other in pairs[index] if other >= 0]
        rows.append([*prompts[label], *text, ids.eos])
        rows += [[*prompts[label], *other, ids.sep, *text, ids.eos] for other in before if other]
    train(model.train(), [row[:context] for row in rows], settings, seed, private=False)
    save_lm(model, tokenizer, folder)
