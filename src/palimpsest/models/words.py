"""What texts are called, and the prompts in words that follow: templates for base models, which go on with text.

One declaration for all that prompt a base model: `predict`, `dp_lm`, the author `base`, and a judge. What a set says is
public and written before a row is read. It is filled with public labels and their descriptions alone.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from palimpsest.settings import Settings

Named = Literal["texts", "reviews", "news", "questions", "tweets", "tickets", "notes", "json"]
Noun = Annotated[str, Field(min_length=1, pattern=r"^[^{}\n]+$")]

BARE = "{label}{separator}"  # the prompt that public text teaches the embedded model


class Words(Settings):
    """What a text and its label are called in prompts in words."""

    text: Noun = Field(description="What a text is called: Review.")
    label: Noun = Field(default="Kind", description="What its label says of it: Opinion.")

    def prompt(self, labelled: bool) -> str:
        """What stands before a text: its label's description, where there are labels, and what it is called."""
        return f"{self.label}: {{description}}\n{self.text}:\n" if labelled else f"{self.text}:\n"

    def shown(self, labelled: bool) -> str:
        """The same behind one text that is shown: the prompt, the text, and the prompt for one more."""
        return f"{self.prompt(labelled)}{{text}}\n\n{self.prompt(labelled)}"

    def paraphrase(self, labelled: bool) -> str:
        """Asks for a text in other words."""
        return f"{self.prompt(labelled)}{{text}}\n\nThe same in other words:\n"

    def blanks(self, labelled: bool) -> str:
        """Asks for a text whose gaps are filled."""
        return f"{self.text} with gaps:\n{{text}}\n\nThe same without gaps.\n{self.prompt(labelled)}"

    @property
    def question(self) -> str:
        """Asks which label a text has."""
        return f"{self.text}:\n{{text}}\n{self.label}:"


_SETS: Mapping[Named, tuple[str, str]] = {
    "texts": ("Text", "Kind"),
    "reviews": ("Review", "Opinion"),
    "news": ("News item", "Section"),
    "questions": ("Question", "Asks for"),
    "tweets": ("Tweet", "Topic"),
    "tickets": ("Support ticket", "Request"),
    "notes": ("Medical note", "Specialty"),
    "json": ("JSON record", "Kind"),
}


def words_of(chosen: Words | Named) -> Words:
    """The words of a set, or those that were given.

    >>> words_of("reviews").prompt(labelled=True)
    'Opinion: {description}\\nReview:\\n'
    """
    if isinstance(chosen, Words):
        return chosen
    text, label = _SETS[chosen]
    return Words(text=text, label=label)
