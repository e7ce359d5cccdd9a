"""The conditional language model, a causal LM with a discriminator, and the folder that a fit leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from palimpsest.errors import ModelError
from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.methods.dp_lm.serialise import Serialiser, serialiser
from palimpsest.methods.shared.base import coins
from palimpsest.methods.shared.shares import divide_total
from palimpsest.methods.shared.tables import draw_cells
from palimpsest.models.attention import blocks, drawn_logits, require_plain_head, states
from palimpsest.models.lm import load_lm
from palimpsest.models.settings import BARE
from palimpsest.records.fields import Declared
from palimpsest.training.scaling import table_scale

_HIDDEN, LAST, BOTH, ENCODER = "hidden", "last", "both", "encoder"
_LM, _HEAD, _SHAPE, _SOFT = "lm", "head.safetensors", "head.json", "soft prompt"
_FACTS, _JUDGE = "artifact.json", "judge"
_TABLES, _JOINT = "fields.safetensors", "joint"


@dataclass(frozen=True)
class HeadShape:
    """A discriminator's input and size.

    Attributes:
        reads: "hidden" (the mean last hidden state of the text), "last" (the state of its last token), "both" (the
            mean token embedding beside the mean state) or "encoder" (a sentence encoder's embedding of the text).
        inputs: width of its input.
        width: hidden units; 0 makes it linear.
        labels: number of labels that it separates.
    """

    reads: str
    inputs: int
    width: int
    labels: int

    def join(self, before: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Update the running features of a text (..., inputs) by those of the next token (..., inputs).

        The result is the sum over all tokens, or the newest token's where the head reads the last token.
        """
        return features if self._last else before + features

    def read(self, kept: torch.Tensor, tokens: int) -> torch.Tensor:
        """Return the head's input (..., inputs) for a text of so many tokens, from the running features of `join`."""
        return kept if self._last else kept / max(1, tokens)

    def prefixes(self, features: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the head's input for every prefix (batch, time, inputs), from features and bool `text` (batch, time).

        Positions outside the text add nothing. A prefix without text has zeros.
        """
        kept = text.unsqueeze(-1).to(features.dtype)
        read = features * kept
        return read if self._last else read.cumsum(dim=1) / kept.cumsum(dim=1).clamp_min(1.0)

    @property
    def _last(self) -> bool:
        return self.reads == LAST


class DiscriminatorHead(nn.Module):
    """The discriminator: features (..., inputs) -> logits over labels (..., labels)."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        first = nn.Linear(shape.inputs, shape.width or shape.labels)
        rest = [nn.Tanh(), nn.Linear(shape.width, shape.labels)] if shape.width else []
        self.net = nn.Sequential(first, *rest)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logits over labels (..., labels) of features (..., inputs)."""
        return self.net(features)


class ConditionalLm(nn.Module):
    """A causal language model and a head that predicts the label from the features of a text prefix.

    The paper classifies the transformer's output for the last token of each prefix (section 5.1.3). PPLM, by which it
    draws, classifies the mean of the states so far. Whichever features a head learns from, `HeadShape` makes it read
    the same ones in training, in filters and in steering. The mean of the token embeddings tells more about the label
    where the model is small, and costs nothing.

    Attributes:
        lm: any causal model of `transformers`.
        scale: the factor of token embeddings when the head reads them: one over the root mean square of the public base
            model's table, so that both halves of the features are of one size.
        soft: a soft prompt (n, width), read before every sequence in place of token embeddings; or None.
    """

    scale: torch.Tensor

    def __init__(
        self, lm: PreTrainedModel, head: DiscriminatorHead, scale: float, soft: nn.Embedding | None = None
    ) -> None:
        super().__init__()
        self.lm = lm
        self.head = head
        self.soft = soft
        self.register_buffer("scale", torch.tensor(scale))
        table = lm.get_input_embeddings()
        self._read_scale = table_scale(table) if isinstance(table, nn.Embedding) else None

    @property
    def embedding(self) -> torch.Tensor:
        """Token embeddings, (vocabulary, width)."""
        return _table(self.lm)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Last hidden states (batch, time, width) of right-padded tokens (batch, time), after the soft prompt."""
        return states(self.lm, tokens, self.front(len(tokens)))

    def front(self, rows: int) -> torch.Tensor | None:
        """The soft prompt repeated for so many rows, (rows, n, width), or None; each row has its own lookup."""
        if self.soft is None:
            return None
        numbers = torch.arange(self.soft.num_embeddings, device=self.soft.weight.device)
        return self.soft(numbers.expand(rows, -1)).to(self.embedding.dtype)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Next-token logits (n, vocabulary) of last hidden states (n, width), in float32 at least."""
        return widen(drawn_logits(self.lm, hidden))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token embeddings (..., width) as constants: the head's loss does not train the table through them."""
        return functional.embedding(tokens, self.embedding.detach())

    def read(self, embedded: torch.Tensor) -> torch.Tensor:
        """Scale (soft) token embeddings (..., width) as the model does: Gemma multiplies its table's rows.

        Raises:
            ModelError: the model's embedding layer does more than scale them.
        """
        if self._read_scale is None:
            raise ModelError(
                "The model's embedding layer is more than a table times a constant: no soft token can be read.",
                "Set generate.horizon to 0, or draw by another variant than pplm and multitask.",
            )
        return embedded * self._read_scale

    def features(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """Return the head's features at each position, (..., inputs), from the last hidden states and token embeddings.

        They are in float32 at least, whatever the language model computes in, because means are taken over many of
        them.
        """
        if self.head.shape.reads == BOTH:
            return torch.cat([widen(embedded) * self.scale, widen(hidden)], dim=-1)
        return widen(hidden)

    def prefix_features(self, tokens: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the head's input for the prefix that ends at each text position of right-padded tokens (batch, time).

        Shape (batch, time, inputs). Positions outside the bool mask `text` (batch, time) are left out.
        """
        return self.head.shape.prefixes(self.features(self.hidden(tokens), self.embed(tokens)), text)

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        """Write `lm/` (a Hugging Face folder with the tokenizer), `head.safetensors`, `head.json`; no pickle.

        A soft prompt is beside the head's weights.
        """
        self.lm.save_pretrained(folder / _LM)
        tokenizer.save_pretrained(folder / _LM)
        weights = {name: weight.contiguous() for name, weight in self.head.state_dict().items()}
        soft = {} if self.soft is None else {_SOFT: self.soft.weight.detach().contiguous()}
        save_file({**weights, **soft, "scale": self.scale}, folder / _HEAD)
        write_json(folder / _SHAPE, self.head.shape.__dict__)

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> tuple["ConditionalLm", PreTrainedTokenizerBase]:
        """The model and tokenizer that `save` wrote; the language model's weights of this type, the head's float32."""
        lm, tokenizer = load_lm(folder / _LM, dtype)
        weights = load_file(folder / _HEAD)
        soft = _vectors(weights.pop(_SOFT)) if _SOFT in weights else None
        head = DiscriminatorHead(HeadShape(**read_json(folder / _SHAPE)))
        model = cls(lm, head, float(weights.pop("scale")), soft)
        model.head.load_state_dict(weights)
        return model.eval(), tokenizer


def widen(numbers: torch.Tensor) -> torch.Tensor:
    """Convert numbers to float32, unless they have a higher precision already."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def new_model(
    folder: Path, labels: int, head_width: int, seed: int, reads: str = _HIDDEN, dtype: torch.dtype = torch.float32
) -> tuple[ConditionalLm, PreTrainedTokenizerBase]:
    """The public base model of `folder`, its weights of this type, with a fresh float32 head, initialised from `seed`.

    Raises:
        ModelError: the model computes its logits by more than its head and a cap, or keeps a past of another kind.
    """
    lm, tokenizer = load_lm(folder, dtype)
    _require_past(lm)
    table = _table(lm)
    scale = float(table.numel() ** 0.5 / torch.linalg.vector_norm(table.detach(), dtype=torch.float64))
    model = ConditionalLm(lm, new_head(HeadShape(reads, state_width(lm, reads), head_width, labels), seed), scale)
    require_plain_head(lm)
    return model.eval(), tokenizer


@torch.no_grad()
def _require_past(lm: PreTrainedModel) -> None:
    tokens, cache = torch.arange(4, device=lm.device)[None], DynamicCache()
    try:
        lm.base_model(input_ids=tokens, attention_mask=torch.ones_like(tokens), past_key_values=cache)
        columns = [layer.keys.shape[2] for layer in cache.layers]  # type: ignore[union-attr]
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # it wants a cache of its own
        columns = []
    if columns != [tokens.shape[1]] * lm.config.get_text_config().num_hidden_layers:
        raise ModelError(
            "The model keeps no keys and values of every layer: no text can be drawn from its past, or steered by it.",
            "Use a model of attention layers alone, such as GPT-2, Llama, Qwen, Mistral, Gemma, OPT or Phi.",
        )


def new_head(shape: HeadShape, seed: int) -> DiscriminatorHead:
    """A head initialised from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DiscriminatorHead(shape)


def with_head(model: ConditionalLm, head: DiscriminatorHead) -> ConditionalLm:
    """Return the language model, including its soft prompt, with this head."""
    return ConditionalLm(model.lm, head, float(model.scale), model.soft).eval()


def with_reads(model: ConditionalLm, reads: str) -> ConditionalLm:
    """Return the language model with an untrained head, only to compute the input of a head with these `reads`."""
    return with_head(model, DiscriminatorHead(HeadShape(reads, state_width(model.lm, reads), 0, 1)))


def state_width(lm: PreTrainedModel, reads: str) -> int:
    """Return the width of a head's input from this model's states."""
    return _table(lm).shape[1] * (2 if reads == BOTH else 1)


def _table(lm: PreTrainedModel) -> torch.Tensor:
    weight = lm.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    return weight


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
    every = blocks(model.lm)
    if first + last > len(every):
        raise ModelError(
            f"{first} first and {last} last blocks cannot be frozen: the model has {len(every)}.",
            "Lower freeze_first or freeze_last.",
        )
    for block in [*every[:first], *every[len(every) - last :]]:
        block.requires_grad_(False)


def add_adapters(model: ConditionalLm, rank: int, seed: int) -> None:
    """Train low-rank adapters of the transformer's matrices instead of everything else in the language model.

    Source: Hu et al. 2021 (LoRA); scaled by 1, adapters on every linear layer but the language model's head. They are
    float32, whatever the weights are.

    Raises:
        ModelError: the library `peft` is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ModelError(
            "lora_rank needs the library peft.", "Install the extra: pip install palimpsest[lora]."
        ) from None
    model.lm.requires_grad_(False)
    names, transposed = _matrices(model)
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=names, fan_in_fan_out=transposed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model.lm)
    for name, parameter in model.lm.named_parameters():
        adapter = "lora_" in name
        parameter.requires_grad_(adapter)
        parameter.data = parameter.data.float() if adapter else parameter.data


def add_soft_prompt(model: ConditionalLm, tokens: int, seed: int) -> None:
    """Train a soft prompt of so many vectors before every sequence instead of the whole language model.

    It is initialised with the embeddings of tokens drawn from `seed`, and is float32 whatever the weights are.

    Source: Lester et al. 2021 (prompt tuning), section 2, and 3.2 for the initialisation.
    """
    model.lm.requires_grad_(False)
    chosen = torch.randint(len(model.embedding), (tokens,), generator=torch.Generator().manual_seed(seed))
    embedded = model.lm.get_input_embeddings()(chosen.to(model.embedding.device))
    model.soft = _vectors(embedded.detach().float())


def _vectors(start: torch.Tensor) -> nn.Embedding:
    """A table that trains, with these rows."""
    table = nn.utils.skip_init(nn.Embedding, *start.shape)
    table.weight = nn.Parameter(start)
    return table


def _matrices(model: ConditionalLm) -> tuple[list[str], bool]:
    """Names of the transformer's linear layers, and whether they keep their weights transposed, as GPT-2's do."""
    head = model.lm.get_output_embeddings()
    modules = model.lm.named_modules()
    linear = {name: one for name, one in modules if isinstance(one, (nn.Linear, Conv1D)) and one is not head}
    return list(linear), any(isinstance(one, Conv1D) for one in linear.values())


def merge_adapters(model: ConditionalLm) -> None:
    """Put the adapters' products into the matrices, which become float32: half precision would round them off."""
    model.lm.float()
    for parent in list(model.lm.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "lora_A"):
                child.merge()  # type: ignore[operator]
                setattr(parent, name, child.base_layer)


def require_context(model: ConditionalLm, tokens: int) -> None:
    """Raise ModelError unless a sequence of `tokens` fits the model after its soft prompt."""
    context = model.lm.config.get_text_config().max_position_embeddings
    needed = tokens + (0 if model.soft is None else model.soft.num_embeddings)
    if needed > context:
        raise ModelError(
            f"A prompt and a text need up to {needed} positions; the model has {context}.",
            "Lower max_tokens, shorten the label names, or use a model with a longer context.",
        )


@dataclass(frozen=True)
class DpLmArtifact:
    """A fitted conditional language model.

    Attributes:
        tokenizer: the public base model's.
        shares: label -> share of the rows, from the noisy histogram or the public prior; in the public order.
        max_tokens: tokens of a text that it was trained on.
        loss_on: tokens that its loss counted, "text" or "all".
        template: the prompt template that came before a text.
        descriptions: label -> public description, for the template.
        judge: a separate model whose head judges texts; None where the head of `model` does.
        fields: public declarations of the fields that records have.
        joint: noisy distribution of the label and the fields, (labels, cells of the first field, ...); None without.
    """

    model: ConditionalLm
    tokenizer: PreTrainedTokenizerBase
    shares: Mapping[str, float]
    max_tokens: int
    loss_on: str
    template: str = BARE
    descriptions: Mapping[str, str] = field(default_factory=dict)
    judge: ConditionalLm | None = None
    fields: Mapping[str, Declared] = field(default_factory=dict)
    joint: np.ndarray | None = None

    @property
    def judging(self) -> ConditionalLm:
        """The model whose head judges texts."""
        return self.model if self.judge is None else self.judge

    def serialiser(self) -> Serialiser:
        """Return a serialiser that turns rows into token sequences as in training."""
        labels = {label: self.descriptions.get(label, "") for label in self.shares}
        return serialiser(self.tokenizer, labels, self.max_tokens, self.loss_on, self.template, self.fields)

    def draw_cells(self, label: str, rows: int, seed: int) -> np.ndarray:
        """Draw the cells of so many rows of a label, int64 (rows, fields); (rows, 0) where records have no fields."""
        if self.joint is None:
            return np.zeros((rows, 0), dtype=np.int64)
        place = list(self.shares).index(label)
        return draw_cells(self.joint[place], rows, coins(seed, "fields", label))

    def counts(self, rows: int) -> dict[str, int]:
        """`rows` rows split over the labels by their shares (largest remainders; ties to the earlier label)."""
        return divide_total(rows, self.shares)

    def save(self, folder: Path) -> None:
        """Write `lm/`, `head.safetensors` and `artifact.json`, and `judge/` for one of its own, all or nothing."""
        with atomic_path(folder) as draft:
            draft.mkdir()
            self.model.save(draft, self.tokenizer)
            if self.judge is not None:
                self.judge.save(draft / _JUDGE, self.tokenizer)
            facts = {"shares": dict(self.shares), "max_tokens": self.max_tokens, "loss_on": self.loss_on}
            facts |= {"template": self.template, "descriptions": dict(self.descriptions)}
            if self.joint is not None:
                facts |= {"fields": dict(self.fields)}
                save_file({_JOINT: torch.from_numpy(self.joint)}, draft / _TABLES)
            write_json(draft / _FACTS, {"method": "dp_lm", **facts})

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> "DpLmArtifact":
        """The artifact that `save` wrote, its language model's weights of this type; those of a judge are float32."""
        model, tokenizer = ConditionalLm.load(folder, dtype)
        facts = read_json(folder / _FACTS)
        told = facts["template"], facts["descriptions"]
        judge = ConditionalLm.load(folder / _JUDGE)[0] if (folder / _JUDGE).is_dir() else None
        joint = load_file(folder / _TABLES)[_JOINT].numpy() if (folder / _TABLES).is_file() else None
        shares, fields = facts["shares"], facts.get("fields", {})
        return cls(model, tokenizer, shares, facts["max_tokens"], facts["loss_on"], *told, judge, fields, joint)
