"""The contexts of private prediction: prompts with one private text, or with none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from palimpsest.errors import ModelError, ParamsError
from palimpsest.models.tokens import Frame, encode_texts, frames, heads_of, require_slots


@dataclass(frozen=True)
class Prompter:
    """Makes the contexts of a batch.

    A text is cut to `text_tokens` tokens and special tokens spelt out in it are dropped, so a record cannot end its own
    slot in a prompt.

    Attributes:
        tokenizer: the public model's.
        private: label -> the frame around a record's text.
        public: label -> the prompt without a record.
        text_tokens: tokens kept of a record's text.
        joint: stands between a free label and its text, where labels are free text; None where they are public.
    """

    tokenizer: PreTrainedTokenizerBase
    private: Mapping[str, Frame]
    public: Mapping[str, tuple[int, ...]]
    text_tokens: int
    joint: str | None = None

    def join_record(self, text: str, label: str | None) -> str:
        """Return a record as one text. A free label comes first, so that a cut takes the text's end."""
        return text if self.joint is None else f"{label or ''}{self.joint}{text}"

    def contexts(self, label: str, texts: Sequence[str]) -> list[list[int]]:
        """Return the prompt of each text."""
        frame = self.private[label]
        return [[*frame.before, *text, *frame.after] for text in encode_texts(self.tokenizer, texts, self.text_tokens)]

    @property
    def longest(self) -> int:
        """The most tokens that a prompt may have."""
        framed = (len(frame.before) + self.text_tokens + len(frame.after) for frame in self.private.values())
        return max(*framed, *map(len, self.public.values()))

    @property
    def longest_with_head(self) -> int:
        """The most tokens that a head and one record after it may have."""
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
    """Make prompts for public labels; a task without labels has the one label "".

    Args:
        tokenizer: the public model's.
        private: template of a context with a record; it names {text} once.
        public: template of the context without one.
        labels: label -> public description.
        chat: put the prompts into the model's chat template, as the user's words.
        text_tokens: tokens kept of a record's text.
        joint: stands between a free label and its text; None where labels are public.

    Raises:
        ParamsError: a template names an unknown slot, or {text} in the wrong place.
        ModelError: `chat` is asked for and the tokenizer has no chat template.
    """
    require_slots("private", private, 1)
    require_slots("public", public, 0)
    if chat and not tokenizer.chat_template:
        raise ModelError(
            "The language model's tokenizer has no chat template.",
            "Set prompt.chat to false, or name an instruction-tuned model in models.lm.",
        )
    around, heads = frames(tokenizer, private, labels, chat), heads_of(tokenizer, public, labels, chat)
    if not all(heads.values()):
        raise ParamsError("The public prompt is empty.", "Give predict.prompt.public at least one word or slot.")
    return Prompter(tokenizer, around, heads, text_tokens, joint)


def split_record(text: str, joint: str) -> tuple[str, str] | None:
    """Split a record that was written as one text into text and free label; None where one of them is missing.

    >>> split_record("comedy | a film to laugh at", " | ")
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
    """Make prompts of several records: `public` holds the head, `private` the frame of one record after it.

    Raises:
        ParamsError: a template names an unknown slot, or {text} in the wrong place.
    """
    require_slots("head", head, 0)
    require_slots("shot", shot, 1)
    around = frames(tokenizer, shot, labels)
    behind = {label: Frame(frame.before[1:], frame.after) for label, frame in around.items()}  # one BOS is enough
    return Prompter(tokenizer, behind, heads_of(tokenizer, head, labels), text_tokens, joint)
