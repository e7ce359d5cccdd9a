"""A tokenizer for public text, and the special tokens of any tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from palimpsest.errors import ModelError

END, PAD, SEPARATOR = "<|endoftext|>", "<|pad|>", "<|sep|>"
_PLAIN_SEPARATOR = "\n"  # stands in where a tokenizer has no separator: a public constant, known to any text model


@dataclass(frozen=True)
class Specials:
    """Token ids with a meaning.

    Attributes:
        bos: begins a sequence.
        sep: ends the prompt.
        eos: ends the text.
        pad: fills a batch; always masked, so it may equal `eos`.
        control: every id that may not occur inside a text.
    """

    bos: int
    sep: int
    eos: int
    pad: int
    control: frozenset[int]


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most `vocabulary` tokens, fitted on public texts."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD, SEPARATOR],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return with_specials(tokenizer, context)


def with_specials(tokenizer: Tokenizer, context: int) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer whose vocabulary has the special tokens for `transformers`."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        sep_token=SEPARATOR,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def specials(tokenizer: PreTrainedTokenizerBase) -> Specials:
    """The special tokens of any causal model's tokenizer; missing ones are replaced by public constants.

    No token is ever added to a vocabulary: a new embedding would have to be learned from private rows only.

    Raises:
        ModelError: the tokenizer has no end-of-text token.
    """
    eos = tokenizer.eos_token_id
    if eos is None:
        raise ModelError("The model's tokenizer has no end-of-text token.", "Use a causal language model that has one.")
    sep, plain = tokenizer.sep_token_id, tokenizer.encode(_PLAIN_SEPARATOR, add_special_tokens=False)
    return Specials(
        bos=eos if tokenizer.bos_token_id is None else tokenizer.bos_token_id,
        sep=(plain or [eos])[-1] if sep is None else sep,
        eos=eos,
        pad=eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        control=frozenset(tokenizer.all_special_ids),
    )


def line_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens with a new line in them."""
    spelt = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    return frozenset(token for token, words in enumerate(spelt) if "\n" in words)


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids of each text, at most `max_tokens`; a special token spelt out in a text is dropped."""
    if not texts:
        return []
    control = frozenset(tokenizer.all_special_ids)
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [[token for token in ids if token not in control][:max_tokens] for ids in encoded]


def pad_right(rows: Sequence[Sequence[int]], fill: int, width: int | None = None) -> torch.Tensor:
    """Rows of unequal length as one int64 matrix (rows, width); the longest row sets the width unless it is given."""
    width = max((len(row) for row in rows), default=0) if width is None else width
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.long).reshape(-1, width)
