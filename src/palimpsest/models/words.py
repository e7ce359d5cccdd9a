"""Names for texts and labels, and the prompts made of them: templates for base models, which continue text.

One declaration for all that prompt a base model: `predict`, `dp_lm`, the author `base`, and a judge. A set of words is
public and written before a row is read. It is filled only with public labels and their descriptions.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from palimpsest.settings import Settings

Named = Literal["texts", "reviews", "news", "questions", "tweets", "tickets", "notes", "json"]
_NOUN = r"^[^{}\n]+$"
Noun = Annotated[str, Field(min_length=1, pattern=_NOUN)]

BARE = "{label}{separator}"  # the prompt that public text teaches the embedded model


class Words(Settings):
    """The names of a text and of its label in prompts in words."""

    text: Noun = Field(description="What a text is called: Review.")
    label: Noun = Field(default="Kind", description="What its label says of it: Opinion.")
    answer: str | None = Field(default=None, min_length=1, pattern=_NOUN)
    """The same to a judge: Sentiment; null: as `label`."""
    form: str | None = Field(default=None, min_length=1)
    """Task json: a record's public form, which stands first; null: the schema's keys, with examples."""

    def prompt(self, labelled: bool) -> str:
        """Return the prompt before a text: the form, if there is one, the label's description, and the text's name."""
        form = "" if self.form is None else f"{self._begins}{_escape_braces(self.form)}\n\n"
        return form + (f"{self.label}: {{description}}\n" if labelled else "") + self._begins

    def prompt_about(self, labelled: bool) -> str:
        """The prompt with phrases that the text is about."""
        return f"{self.prompt(labelled).removesuffix(self._begins)}{self.text} about {{phrases}}:\n"

    def prompt_with_example(self, labelled: bool) -> str:
        """Return the prompt with an example: the prompt, the example, and the prompt for one more, without a form."""
        again = self.model_copy(update={"form": None})
        return f"{self.prompt(labelled)}{{text}}\n\n{again.prompt(labelled)}"

    def paraphrase(self, labelled: bool) -> str:
        """Asks for a text in other words."""
        return f"{self.prompt(labelled)}{{text}}\n\nThe same in other words:\n"

    def blanks(self, labelled: bool) -> str:
        """Asks for a text whose gaps are filled."""
        return f"{self.text} with gaps:\n{{text}}\n\nThe same without gaps.\n{self.prompt(labelled)}"

    @property
    def _begins(self) -> str:
        return f"{self.text}:\n"

    @property
    def question(self) -> str:
        """Asks a judge which label a text has; the answer follows on the same line."""
        return f"{self.text}: {{text}}\n{self.answer or self.label}:"


_SETS: Mapping[Named, Words] = {
    "texts": Words(text="Text"),
    "reviews": Words(text="Review", label="Opinion", answer="Sentiment"),
    "news": Words(text="News item", label="Section"),
    "questions": Words(text="Question", label="Asks for", answer="Answer type"),
    "tweets": Words(text="Tweet", label="Topic"),
    "tickets": Words(text="Support ticket", label="Request"),
    "notes": Words(text="Medical note", label="Specialty"),
    "json": Words(text="JSON record"),
}


def _escape_braces(text: str) -> str:
    """Escape a text for a template: none of its braces is a slot."""
    return text.replace("{", "{{").replace("}", "}}")


def words_of(chosen: Words | Named) -> Words:
    """The words of a named set, or the given words.

    >>> words_of("reviews").prompt(labelled=True)
    'Opinion: {description}\\nReview:\\n'
    """
    return chosen if isinstance(chosen, Words) else _SETS[chosen]
