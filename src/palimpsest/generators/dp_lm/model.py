"""The conditional language model: a causal LM and a discriminator head on its hidden states."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError
from palimpsest.models.lm import load_lm

_LM, _HEAD = "lm", "head.safetensors"


class ConditionalLm(nn.Module):
    """A causal language model and an MLP that reads the label off the mean hidden state of a text prefix.

    The paper classifies "the transformer output" at the end of each prefix; its generation step (PPLM) classifies the
    mean of the hidden states so far. Training on the same mean makes the head fit for the use it is put to.

    Attributes:
        lm: any causal model of `transformers`.
        head: hidden state (..., width) -> logits over labels (..., labels).
    """

    def __init__(self, lm: PreTrainedModel, labels: int, head_width: int) -> None:
        super().__init__()
        self.lm = lm
        width = self.embedding.shape[1]
        self.head = nn.Sequential(nn.Linear(width, head_width), nn.Tanh(), nn.Linear(head_width, labels))

    @property
    def embedding(self) -> torch.Tensor:
        """Token embeddings, (vocabulary, width)."""
        weight = self.lm.get_input_embeddings().weight
        assert isinstance(weight, torch.Tensor)
        return weight

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Last hidden states (batch, time, width) of right-padded tokens (batch, time)."""
        everywhere = torch.ones_like(tokens)  # said aloud, or the library suspects the padding
        return self.lm.base_model(input_ids=tokens, attention_mask=everywhere, use_cache=False).last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Next-token logits (..., vocabulary) of last hidden states (..., width)."""
        return self.lm.get_output_embeddings()(hidden)

    def classify_prefixes(self, hidden: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Label logits (batch, time, labels) of the text up to each position.

        Args:
            hidden: last hidden states, (batch, time, width).
            text: which positions are text, bool (batch, time); all others are left out of the mean.
        """
        kept = text.unsqueeze(-1).to(hidden.dtype)
        count = kept.cumsum(dim=1).clamp_min(1.0)
        return self.head((hidden * kept).cumsum(dim=1) / count)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        """Write `lm/` (a Hugging Face folder with the tokenizer) and `head.safetensors`; no pickle."""
        self.lm.save_pretrained(folder / _LM)
        tokenizer.save_pretrained(folder / _LM)
        save_file({name: weight.contiguous() for name, weight in self.head.state_dict().items()}, folder / _HEAD)

    @classmethod
    def load(cls, folder: Path) -> tuple["ConditionalLm", PreTrainedTokenizerBase]:
        """The model and tokenizer that `save` wrote."""
        lm, tokenizer = load_lm(folder / _LM)
        weights = load_file(folder / _HEAD)
        model = cls(lm, labels=len(weights["2.bias"]), head_width=len(weights["0.bias"]))
        model.head.load_state_dict(weights)
        return model.eval(), tokenizer


def new_model(folder: Path, labels: int, head_width: int, seed: int) -> tuple[ConditionalLm, PreTrainedTokenizerBase]:
    """The public base model of `folder` with a fresh head, initialised from `seed`.

    Raises:
        ModelError: the model does more to its logits than its head does.
    """
    lm, tokenizer = load_lm(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ConditionalLm(lm, labels, head_width).eval()
    _require_plain_head(model)
    return model, tokenizer


@torch.no_grad()
def _require_plain_head(model: ConditionalLm) -> None:
    tokens = torch.arange(4, device=model.embedding.device)[None]
    if not torch.allclose(model.logits(model.hidden(tokens)), model.lm(tokens).logits, rtol=1e-4, atol=1e-4):
        raise ModelError(
            "The model scales or caps its logits behind its head, which is not supported.",
            "Use a model whose logits are its head's output, such as GPT-2, Llama or OPT.",
        )


def freeze(model: ConditionalLm, first: int, last: int, embeddings: bool) -> None:
    """Keep the first and last transformer blocks, and the embeddings, as the public model has them.

    Raises:
        ModelError: the model has fewer blocks than are to be frozen.
    """
    if embeddings:
        for module in model.lm.modules():
            if isinstance(module, nn.Embedding):
                module.requires_grad_(False)
        model.lm.get_output_embeddings().requires_grad_(False)
    if not first and not last:
        return
    blocks = _blocks(model.lm)
    if first + last > len(blocks):
        raise ModelError(
            f"{first} first and {last} last blocks cannot be frozen: the model has {len(blocks)}.",
            "Lower freeze_first or freeze_last.",
        )
    for block in [*blocks[:first], *blocks[len(blocks) - last :]]:
        block.requires_grad_(False)


def require_context(model: ConditionalLm, tokens: int) -> None:
    """Raise ModelError unless a sequence of `tokens` fits the model."""
    context = model.lm.config.get_text_config().max_position_embeddings
    if tokens > context:
        raise ModelError(
            f"A prompt and a text need up to {tokens} positions; the model has {context}.",
            "Lower max_tokens, shorten the label names, or use a model with a longer context.",
        )


def _blocks(lm: PreTrainedModel) -> nn.ModuleList:
    """The transformer blocks, whatever the architecture calls them."""
    lists = [module for module in lm.base_model.children() if isinstance(module, nn.ModuleList)]
    depth = lm.config.get_text_config().num_hidden_layers
    found = [blocks for blocks in lists if len(blocks) == depth]
    if not found:
        raise ModelError("The model's transformer blocks were not found.", "Set freeze_first and freeze_last to 0.")
    return found[0]

