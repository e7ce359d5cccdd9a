"""A causal language model that reads a sentence embedding while it writes.

The embedding enters in three ways. A small network turns it into pseudo tokens before the text (prefix tuning, Li &
Liang 2021). It is added to the input of every position. And it predicts words: a linear map gives each token the
log-odds of being in a text with this embedding rather than in any text, and these are added to the logits of the
language model, a product of experts. The language model decides at each position how much the words count, and a word
that is already written counts less.

A corrector is the same network with more inputs: the embedding of an earlier text beside the wanted embedding, and the
tokens of that text before everything else. Its first maps are linear, so they can read the difference, too.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from palimpsest.errors import ModelError
from palimpsest.models.attention import MOST_LOGITS, logits_of, require_plain_head
from palimpsest.models.lm import IGNORED
from palimpsest.models.settings import DecodeSettings
from palimpsest.models.tokens import Specials, pad_right
from palimpsest.models.writing import draw


class Network(nn.Module):
    """The decoder's network.

    Attributes:
        dimension: length d of an embedding.
        earlier: tokens of an earlier text that it reads first; 0 for none.
        reads: size r of its input: d, or 2 d where it reads the embedding of an earlier text as well.
        room: most tokens of a text that it can read or write.
        centre: the mean of its inputs, shape (r,).
        words: map from the input to the rise in each token's log-probability, r -> vocabulary.
    """

    def __init__(
        self, lm: PreTrainedModel, ids: Specials, dimension: int, prefix: int, width: int, earlier: int = 0
    ) -> None:
        """Initialise maps, by torch's global random state, around a language model; untrained, it writes as that does.

        Args:
            lm: a causal language model that takes `inputs_embeds`.
            ids: special tokens of its tokenizer.
            dimension: length d of an embedding.
            prefix: pseudo tokens k.
            width: hidden units between an embedding and the pseudo tokens.
            earlier: tokens of an earlier text that it reads first, which makes it a corrector; 0: a decoder.

        Raises:
            ModelError: the model computes its logits by more than its head and a cap.
        """
        super().__init__()
        require_plain_head(lm)
        self.lm, self.dimension, self.earlier, self._ids, self._prefix = lm, dimension, earlier, ids, prefix
        self.reads = reads = dimension * (2 if earlier else 1)
        table, columns = _weight(lm.get_input_embeddings()), len(_weight(lm.get_output_embeddings()))
        hidden = table.shape[1]
        self.room = int(lm.config.get_text_config().max_position_embeddings) - prefix - 1 - earlier
        self.centre = nn.Buffer(torch.zeros(reads))
        last = nn.Linear(width, prefix * hidden)
        self.pseudo = nn.Sequential(nn.Linear(reads, width), nn.GELU(), last)
        self.everywhere = nn.Linear(reads, hidden, bias=False)
        self.words = nn.Linear(reads, columns)
        self.trust = nn.Linear(hidden, 1)
        self.spent = nn.Parameter(torch.tensor(0.5))  # share of a token's log-odds that is gone once it is written
        with torch.no_grad():
            last.weight.mul_(table.std())  # as large as tokens are
            for weight in (last.bias, self.everywhere.weight, *self.words.parameters(), self.trust.weight):
                weight.zero_()
            self.trust.bias.fill_(1.0)

    def load_maps(self, maps: Mapping[str, torch.Tensor]) -> None:
        """Take over all weights but those of the language model.

        Raises:
            ModelError: they are not those of a network of these sizes.
        """
        try:
            missing, unknown = self.load_state_dict(maps, strict=False)
        except RuntimeError:  # a weight has another shape
            missing, unknown = [], list(maps)
        if unknown or not all(name.startswith("lm.") for name in missing):
            raise ModelError(
                "The weights of the decoder do not fit its language model and its sizes.", "Train the decoder again."
            )

    def corrector(self, width: int, earlier: int) -> "Network":
        """Return a corrector that writes like this decoder until it is trained: its new inputs have weight zero.

        The language model inside is a copy.
        """
        with torch.random.fork_rng():
            network = Network(deepcopy(self.lm), self._ids, self.dimension, self._prefix, width, earlier)
        sizes = {name: value.shape[-1:] for name, value in network.state_dict().items()}
        old = {name: functional.pad(value, _padding(value, sizes[name])) for name, value in self.state_dict().items()}
        network.load_state_dict(old)
        return network.to(self.centre.device)

    def scale(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Scale the maps' input: unit vectors (B, r) around their mean, with coordinates of about unit variance."""
        return (embeddings - self.centre) * self.dimension**0.5

    def loss(
        self, embeddings: torch.Tensor, texts: Sequence[Sequence[int]], earlier: Sequence[Sequence[int]] = ()
    ) -> torch.Tensor:
        """Mean cross entropy, in nats per token, of texts (B lists of token ids) and their ends.

        Args:
            embeddings: the input, shape (B, r).
            earlier: tokens of the earlier texts, where it reads them.
        """
        read = self.scale(embeddings)
        tokens = pad_right(texts, 0).to(read.device)
        targets = pad_right([[*text, self._ids.eos] for text in texts], IGNORED).to(read.device)  # (B, T + 1)
        inputs = torch.cat([self._beginning(read, earlier), self._inputs(tokens, read)], dim=1)
        hidden = self._hidden(inputs, None)[:, self.earlier + self._prefix :]
        size = max(1, MOST_LOGITS // (targets.shape[1] * self.words.out_features))
        parts = zip(*(values.split(size) for values in (read, tokens, targets, hidden)), strict=True)
        if len(texts) > size:  # logits of a large vocabulary are there for so many texts at once
            nats = [checkpoint(self._nats, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
        else:
            nats = [self._nats(*part) for part in parts]
        return torch.stack(nats).sum() / (targets != IGNORED).sum()

    def _nats(
        self, read: torch.Tensor, tokens: torch.Tensor, targets: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Summed cross entropy in nats of texts (B, T) and their ends, from states (B, T + 1, hidden)."""
        real = targets != IGNORED
        hidden = hidden[real]  # (predicted, hidden)
        rows = real.nonzero()[:, 0]
        worth, trust = self.words(read), self.trust(hidden)
        logits = torch.addcmul(logits_of(self.lm, hidden), trust, worth[rows])
        places, written = _find_written(tokens, real)
        spent = self.spent * trust[places, 0] * worth[rows[places], written]
        logits = logits.index_put((places, written), -spent, accumulate=True)
        return functional.cross_entropy(logits, targets[real], reduction="sum")

    @torch.no_grad()
    def write(
        self,
        embeddings: torch.Tensor,
        begun: Sequence[Sequence[int]],
        coins: np.ndarray,
        banned: torch.Tensor,
        settings: DecodeSettings,
        earlier: Sequence[Sequence[int]] = (),
    ) -> list[list[int]]:
        """Write a text, as token ids, for each embedding; no text depends on the others, except by rounding.

        Args:
            embeddings: the input, shape (B, r).
            begun: the first tokens of each text, which are kept; may be empty.
            coins: draws in [0, 1), float64 (B, tokens of a text at most).
            banned: tokens that are never written.
            earlier: tokens of the earlier texts, where it reads them.
        """
        read, uniforms = self.scale(embeddings), torch.from_numpy(coins).to(embeddings.device)
        worth, cache = self.words(read), DynamicCache()
        texts: list[list[int]] = [[] for _ in begun]
        alive = list(range(len(texts)))
        hidden = self._hidden(self._beginning(read, earlier), cache)[:, -1]
        for place in range(coins.shape[1]):
            logits = logits_of(self.lm, hidden) + self.trust(hidden) * worth
            logits[:, banned] = -torch.inf
            if place == 0:
                logits[:, self._ids.eos] = -torch.inf  # no text is empty
            likely = functional.log_softmax(logits / settings.temperature, dim=-1)
            drawn = draw(likely, settings.top_p, uniforms[alive, place]).tolist()
            tokens = [[*begun[row][place : place + 1], token][0] for row, token in zip(alive, drawn, strict=True)]
            going = [index for index, token in enumerate(tokens) if token != self._ids.eos]
            if not going:
                break
            cache.batch_select_indices(torch.tensor(going, device=read.device))
            alive, tokens = [alive[index] for index in going], [tokens[index] for index in going]
            worth, read, chosen = worth[going], read[going], torch.tensor(tokens, device=read.device)
            fresh = [index for index, row in enumerate(alive) if tokens[index] not in texts[row]]
            worth[fresh, chosen[fresh]] *= 1.0 - self.spent
            for row, token in zip(alive, tokens, strict=True):
                texts[row].append(token)
            hidden = self._hidden(self._inputs(chosen[:, None], read), cache)[:, -1]
        return texts

    def _beginning(self, read: torch.Tensor, earlier: Sequence[Sequence[int]]) -> torch.Tensor:
        """The earlier text, pseudo tokens and BOS as inputs: (B, earlier + prefix + 1, hidden).

        An earlier text is padded with end tokens: so all have one length, and none depends on its neighbours.
        """
        start = torch.full((len(read), 1), self._ids.bos, device=read.device)
        parts = [self.pseudo(read).view(len(read), self._prefix, -1), self._inputs(start, read)]
        if self.earlier:
            filled = [[*text, *[self._ids.eos] * self.earlier][: self.earlier] for text in earlier]
            parts.insert(0, self._inputs(torch.tensor(filled, device=read.device), read))
        return torch.cat(parts, dim=1)

    def _inputs(self, tokens: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.lm.get_input_embeddings()(tokens)
        return embedded + self.everywhere(read)[:, None]

    def _hidden(self, inputs: torch.Tensor, cache: DynamicCache | None) -> torch.Tensor:
        """Last hidden states of inputs that follow the cache's contents."""
        before = cache.get_seq_length() if cache is not None else 0
        seen = len(inputs), before + inputs.shape[1]  # padding follows the text
        everywhere = torch.ones(seen, dtype=torch.long, device=inputs.device)
        output = self.lm.base_model(
            inputs_embeds=inputs, attention_mask=everywhere, past_key_values=cache, use_cache=cache is not None
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def _padding(value: torch.Tensor, size: torch.Size) -> list[int]:
    """Return the zeros before and after along the last axis that bring a weight to this size."""
    return [0, size[0] - value.shape[-1]] if size else []


def _weight(module: nn.Module) -> torch.Tensor:
    """The table of tokens of an input or output layer: (vocabulary, hidden)."""
    return cast(torch.Tensor, module.weight)


def _find_written(tokens: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each predicted position the tokens written before it, each once.

    Args:
        tokens: shape (B, T).
        real: which of the T + 1 positions of each text are predicted, shape (B, T + 1).

    Returns:
        Places among the predicted positions, and tokens: both (pairs,).
    """
    length = tokens.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril(-1)
    first = ~((tokens[:, :, None] == tokens[:, None]) & earlier).any(dim=2)  # (B, T): not seen before
    behind = torch.ones(length + 1, length, dtype=torch.bool, device=tokens.device).tril(-1)
    rows, positions, sources = (first[:, None] & behind & real[:, :, None]).nonzero(as_tuple=True)
    places = (real.flatten().cumsum(0) - 1).view_as(real)
    return places[rows, positions], tokens[rows, sources]
