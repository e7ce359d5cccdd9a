"""Reads or moves a causal model's hidden states after one of its blocks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError
from palimpsest.models.attention import blocks
from palimpsest.models.tokens import encode_texts, pad_right


class _Read(Exception):
    """Raised once the states are computed: no later block needs to run."""


class Activations:
    """A text's mean hidden state after one block, over the text's own tokens.

    Attributes:
        dimension: length d of a state.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        block: int,
        head: Sequence[int],
        max_tokens: int,
    ) -> None:
        """Read after the block of that number, counted from 0.

        Args:
            head: public tokens that come before every text, at least one.
            max_tokens: how many tokens of a text are read.

        Raises:
            ModelError: the model's blocks are not found, or the head and a text do not fit its context.
        """
        context = int(model.config.get_text_config().max_position_embeddings)
        if len(head) + max_tokens > context:
            raise ModelError(
                f"A prompt and a text need up to {len(head) + max_tokens} positions; the model has {context}.",
                "Lower max_tokens, shorten the prompt, or use a model with a longer context.",
            )
        self._model, self._tokenizer, self._block = model, tokenizer, blocks(model)[block]
        self._head, self._most = list(head), max_tokens
        self.dimension = int(model.config.get_text_config().hidden_size)

    @torch.no_grad()
    def encode_batch(self, texts: list[str]) -> np.ndarray:
        """Mean states of texts that are read side by side, float32 (n, d); 0 for a text without tokens."""
        rows = encode_texts(self._tokenizer, texts, self._most)
        tokens = pad_right([[*self._head, *row] for row in rows], 0).to(self._model.device)
        own = pad_right([[0] * len(self._head) + [1] * len(row) for row in rows], 0).to(self._model.device)
        states = self._states(tokens).float()  # (n, time, d); what pads a row stands behind it, and it looks back alone
        means = (states * own[:, :, None]).sum(dim=1) / own.sum(dim=1, keepdim=True).clamp_min(1)
        return means.cpu().numpy()

    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []

        def read(states: torch.Tensor) -> torch.Tensor:
            found.append(states)
            raise _Read

        with _change_output(self._block, read), suppress(_Read):
            self._model.base_model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
        return found[0]


def shift_states(model: PreTrainedModel, block: int, shift: np.ndarray) -> Any:
    """A context in which the hidden states after a block are moved by `shift`, (d,), at every position."""
    by = torch.as_tensor(shift, dtype=model.dtype, device=model.device)
    return _change_output(blocks(model)[block], lambda states: states + by)


@contextmanager
def _change_output(block: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """A context in which the output of a block, (rows, time, d), is changed."""

    def hook(_block: nn.Module, _given: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    handle = block.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
