"""Prompts as data: a template with slots becomes token ids, with one private text or with none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from transformers import PreTrainedTokenizerBase

from palimpsest.errors import ModelError, ParamsError
from palimpsest.models.tokens import encode_texts, specials
from palimpsest.prediction.sampling import UNLABELLED

SLOTS = ("text", "label", "description", "separator", "end")
_MARK = "\x00"  # stands for the text while a chat template is filled in; no text may hold it


@dataclass(frozen=True)
class Frame:
    """What stands around a text, as token ids."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Prompter:
    """Makes the contexts of a batch.

    A text is cut to `text_tokens` tokens and special tokens spelt out in it are dropped, so a record cannot end its own
    slot in a prompt.

    Attributes:
        tokenizer: the public model's.
        private: label -> what stands around a record's text.
        public: label -> the prompt without a record.
        text_tokens: tokens kept of a record's text.
        joint: stands between a free label and its text, where labels are free text; None where they are public.
    """

    tokenizer: PreTrainedTokenizerBase
    private: Mapping[str, Frame]
    public: Mapping[str, tuple[int, ...]]
    text_tokens: int
    joint: str | None = None

    def spelt(self, text: str, label: str | None) -> str:
        """A record as one text: a free label comes first, so that a cut takes the text's end."""
        return text if self.joint is None else f"{label or ''}{self.joint}{text}"

    def contexts(self, label: str, texts: Sequence[str]) -> list[list[int]]:
        """The prompt of each text."""
        frame = self.private[label]
        return [[*frame.before, *text, *frame.after] for text in encode_texts(self.tokenizer, texts, self.text_tokens)]

    @property
    def longest(self) -> int:
        """Most tokens that a prompt may have."""
        framed = (len(frame.before) + self.text_tokens + len(frame.after) for frame in self.private.values())
        return max(*framed, *map(len, self.public.values()))

    @property
    def longest_with_head(self) -> int:
        """Most tokens that a head and one record behind it may have."""
        return self.longest + max(map(len, self.public.values()))


def prompter(
    tokenizer: PreTrainedTokenizerBase,
    private: str,
    public: str,
    labels: Mapping[str, str],
    *,
    chat: bool,
    text_tokens: int,
    joint: str | None = None,
) -> Prompter:
    """Prompts for public labels; a task without labels has the one label "".

    Args:
        tokenizer: the public model's.
        private: template of a context with a record; it names {text} once.
        public: template of the context without one.
        labels: label -> public description.
        chat: put the prompts into the model's chat template, as the user's words.
        text_tokens: tokens kept of a record's text.
        joint: stands between a free label and its text; None where labels are public.

    Raises:
        ParamsError: a template names a slot that there is not, or {text} in the wrong place.
        ModelError: `chat` is asked for and the tokenizer has no chat template.
    """
    _require_slots("private", private, 1)
    _require_slots("public", public, 0)
    if chat and not tokenizer.chat_template:
        raise ModelError(
            "The language model's tokenizer has no chat template.",
            "Set prompt.chat to false, or name an instruction-tuned model in models.lm.",
        )
    frames = _frames(tokenizer, private, labels, chat)
    heads = {label: frame.before for label, frame in _frames(tokenizer, public, labels, chat).items()}
    if not all(heads.values()):
        raise ParamsError("The public prompt is empty.", "Give predict.prompt.public at least one word or slot.")
    return Prompter(tokenizer, frames, heads, text_tokens, joint)


def parsed(text: str, joint: str) -> tuple[str, str] | None:
    """Text and free label of a record that was written as one text; None where one of them is missing.

    >>> parsed("comedy | a film to laugh at", " | ")
    ('a film to laugh at', 'comedy')
    """
    label, rest = (part.strip() for part in text.partition(joint.strip() or joint)[::2])
    return (rest, label) if label and rest else None


def few_shot_prompter(
    tokenizer: PreTrainedTokenizerBase,
    head: str,
    shot: str,
    labels: Mapping[str, str],
    *,
    text_tokens: int,
    joint: str | None = None,
) -> Prompter:
    """Prompts of several records: `public` holds the head, `private` what stands around one record behind it.

    Raises:
        ParamsError: a template names a slot that there is not, or {text} in the wrong place.
    """
    _require_slots("head", head, 0)
    _require_slots("shot", shot, 1)
    heads = {label: frame.before for label, frame in _frames(tokenizer, head, labels, False).items()}
    around = _frames(tokenizer, shot, labels, False)
    frames = {label: Frame(frame.before[1:], frame.after) for label, frame in around.items()}  # one BOS is enough
    return Prompter(tokenizer, frames, heads, text_tokens, joint)


def _frames(
    tokenizer: PreTrainedTokenizerBase, template: str, labels: Mapping[str, str], chat: bool
) -> dict[str, Frame]:
    """What stands around a text under each label, or under the one label of a task without labels."""
    named = dict(labels) or {UNLABELLED: ""}
    return {label: _frame(tokenizer, template, label, words, chat) for label, words in named.items()}


def _require_slots(name: str, template: str, texts: int) -> None:
    """Raise ParamsError unless a template names known slots, and {text} so many times."""
    named = _slots(template)
    if unknown := set(named) - set(SLOTS):
        raise ParamsError(
            f"The {name} prompt has the slots {sorted(unknown)}, which there are not.",
            f"Use {', '.join('{' + slot + '}' for slot in SLOTS)}; write a brace twice to have it as it is.",
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


def _frame(tokenizer: PreTrainedTokenizerBase, template: str, label: str, description: str, chat: bool) -> Frame:
    ids = specials(tokenizer)
    parts, slots = _parts(template, label, description), {"separator": ids.sep, "end": ids.eos}
    if chat:
        spelt = {"text": _MARK} | {slot: str(tokenizer.decode([token])) for slot, token in slots.items()}
        words = "".join(part if isinstance(part, str) else spelt[part[0]] for part in parts)
        message = [{"role": "user", "content": words}]
        whole = str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        before, _, after = whole.partition(_MARK)
        return Frame(_encode(tokenizer, before), _encode(tokenizer, after))
    sides: tuple[list[int], list[int]] = ([ids.bos], [])
    side = 0
    for part in parts:
        if part == ("text",):
            side = 1
        else:
            sides[side].extend(_encode(tokenizer, part) if isinstance(part, str) else [slots[part[0]]])
    return Frame(tuple(sides[0]), tuple(sides[1]))


def _parts(template: str, label: str, description: str) -> Iterator[str | tuple[str]]:
    """Words as they are to be tokenised, and the slots that are no words, each as a tuple."""
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
