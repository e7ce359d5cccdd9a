"""Tokens, and prompts made of them: a tokenizer for public text, special tokens, and templates around a text.

Templates become token ids around one text, or before one. They are filled only with public labels and descriptions. So
every frame is a public constant, and so is its length. A text is inserted by its own token ids, between a frame's two
sides, and can change neither of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from palimpsest.errors import ModelError, ParamsError

END, PAD, SEPARATOR = "<|endoftext|>", "<|pad|>", "<|sep|>"
_PLAIN_SEPARATOR = "\n"  # stands in where a tokenizer has no separator: a public constant, known to any text model
_SLOTS = ("text", "label", "description", "separator", "end")
_MARK = "\x00"  # stands for the text while a chat template is filled in; no text may hold it

_Part = str | tuple[str]  # words, or a slot that is no words


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


@dataclass(frozen=True)
class Frame:
    """The token ids before and after a text."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def heads_of(
    tokenizer: PreTrainedTokenizerBase, template: str, labels: Mapping[str, str], chat: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the token ids before a text of each label, by a template without {text}; see `frames`."""
    return {label: frame.before for label, frame in frames(tokenizer, template, labels, chat).items()}


def blind_of(tokenizer: PreTrainedTokenizerBase, template: str) -> Frame:
    """Return the frame of one token in place of the label and its description; without them the token comes last."""
    return _sides(tokenizer, _blind_label(_parts(template, _MARK, _MARK)))


def frames(
    tokenizer: PreTrainedTokenizerBase, template: str, labels: Mapping[str, str], chat: bool = False
) -> dict[str, Frame]:
    """Return the frame of a text under each label, or under the one label "" of a task without labels.

    Args:
        labels: label -> public description.
        chat: put the prompt into the model's chat template, as the user's words.
    """
    named = dict(labels) or {"": ""}
    return {label: frame_of(tokenizer, template, label, words, chat) for label, words in named.items()}


def require_slots(name: str, template: str, texts: int) -> None:
    """Raise ParamsError unless a template names known slots, and {text} so many times."""
    named = _slots(template)
    if unknown := set(named) - set(_SLOTS):
        raise ParamsError(
            f"The {name} prompt has the slots {sorted(unknown)}, which there are not.",
            f"Use {', '.join('{' + slot + '}' for slot in _SLOTS)}; write a brace twice to have it as it is.",
        )
    if named.count("text") != texts:
        raise ParamsError(
            f"The {name} prompt names {{text}} {named.count('text')} times.",
            "Name it once where a record stands, and not where none does.",
        )


def _slots(template: str) -> list[str]:
    try:
        return [slot for _, slot, _, _ in Formatter().parse(template) if slot is not None]
    except ValueError:
        raise ParamsError(f"The prompt {template!r} has a brace alone.", "Write it twice.") from None


def frame_of(tokenizer: PreTrainedTokenizerBase, template: str, label: str, description: str, chat: bool) -> Frame:
    """Return the frame of a text of one label; see `frames`."""
    parts = _parts(template, label, description)
    if chat:
        spelt = {"text": _MARK} | {slot: str(tokenizer.decode([id])) for slot, id in _tokens(tokenizer).items()}
        words = "".join(part if isinstance(part, str) else spelt[part[0]] for part in parts)
        message = [{"role": "user", "content": words}]
        whole = str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        before, _, after = whole.partition(_MARK)
        return Frame(_encode(tokenizer, before), _encode(tokenizer, after))
    return _sides(tokenizer, parts)


def _sides(tokenizer: PreTrainedTokenizerBase, parts: Iterable[_Part]) -> Frame:
    """Words and slots as token ids, BOS first, on either side of the text."""
    sides: tuple[list[int], list[int]] = ([specials(tokenizer).bos], [])
    slots, side = _tokens(tokenizer), 0
    for part in parts:
        if part == ("text",):
            side = 1
        else:
            sides[side].extend(_encode(tokenizer, part) if isinstance(part, str) else [slots[part[0]]])
    return Frame(tuple(sides[0]), tuple(sides[1]))


def _tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The slots that are a token each."""
    ids = specials(tokenizer)
    return {"separator": ids.sep, "end": ids.eos}


def _blind_label(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Put the text's place where the label's mark first occurs, and drop the mark elsewhere."""
    placed = False
    for part in parts:
        if isinstance(part, str):
            before, mark, after = ("", "", part) if placed else part.partition(_MARK)
            found: list[_Part] = [before, ("text",), after] if mark else [before + after]
            yield from (piece.replace(_MARK, "") if isinstance(piece, str) else piece for piece in found if piece)
            placed = placed or bool(mark)
        else:
            yield part


def _parts(template: str, label: str, description: str) -> Iterator[_Part]:
    """Yield words as they are to be tokenised, and slots that are not words, each as a tuple."""
    words = ""
    for literal, slot, _, _ in Formatter().parse(template):
        words += literal
        if slot in ("label", "description"):
            words += label if slot == "label" else description
        elif slot is not None:
            if words:
                yield words
            yield (slot,)
            words = ""
    if words:
        yield words


def _encode(tokenizer: PreTrainedTokenizerBase, words: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(words, add_special_tokens=False)) if words else ()
