"""Prompts as data: a template with slots becomes token ids around one text, or before one.

Templates are filled only with public labels and descriptions. So every frame is a public constant, and so is its
length. A text is inserted by its own token ids, between a frame's two sides, and can change neither of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import Formatter

from transformers import PreTrainedTokenizerBase

from palimpsest.errors import ParamsError
from palimpsest.models.tokens import specials

_SLOTS = ("text", "label", "description", "separator", "end")
_MARK = "\x00"  # stands for the text while a chat template is filled in; no text may hold it

_Part = str | tuple[str]  # words, or a slot that is no words


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
