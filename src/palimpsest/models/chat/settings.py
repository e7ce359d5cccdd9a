"""Settings of authors that are asked in words, local or behind an endpoint. None of them sees a private row."""

from collections.abc import Collection, Mapping
from string import Formatter
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from palimpsest.settings import Settings

ANY_LABEL = "*"  # key of the keywords that are for every label without its own


_SLOTS: Mapping[str, frozenset[str]] = {
    "random": frozenset({"label", "description", "keyword", "style", "words"}),
    "paraphrase": frozenset({"text", "label", "description", "style", "words"}),
    "blanks": frozenset({"text", "blank", "label", "description", "style", "words"}),
}  # template -> what it may name

# Default prompts of an instruction-following author, unless params.yaml says otherwise. All are sent to the model.
_SYSTEM = "You write realistic texts as many different people would. You answer with the text alone, without a remark."
_RANDOM = """\
Write one text of the kind "{label}" ({description}), as a person might have written it. Write it {style}.
Use about {words} words. Answer with the text alone: no title, no label, no quotation marks."""
_PARAPHRASE = """\
Say the text below in other words, {style}. It stays a text of the kind "{label}" and of the same sort, but may
change details, names and the order of what it says. Use about {words} words. Answer with the new text alone.

{text}"""
_BLANKS = """\
In the text below some words were taken out; each gap is marked {blank}. Fill every gap so that a fluent text of the
kind "{label}" comes out, of about {words} words. You may change other words where that helps. Answer with the
complete text alone, without any mark.

{text}"""
_STYLES = (
    "plainly and briefly", "in a casual, chatty voice", "in a formal voice", "with dry humour", "with strong feeling",
    "calmly and evenly", "with one concrete detail", "with several small details", "as if in a hurry",
    "as an expert would", "as a beginner would", "to a friend", "to a stranger", "in short, blunt sentences",
    "in one long, winding sentence", "by way of a small story", "by way of a comparison",
    "starting from an expectation", "starting from the conclusion", "with a mild reservation",
)  # fmt: skip


def system_message(language: str) -> str:
    """Return the system message for texts in a language, a tag of BCP 47; the usual one for English."""
    return _SYSTEM if is_english(language) else f"{_SYSTEM} You write in the language with the BCP 47 tag {language}."


def is_english(language: str) -> bool:
    """Tell whether a tag of BCP 47 names English of any country."""
    return language.lower().split("-")[0] == "en"


class Prompts(Settings):
    """The prompts of an instruction-following model. Templates may name what is listed; a brace is written twice."""

    system: str | None = Field(default=_SYSTEM, description="System message; null for none.")
    random: str = Field(default=_RANDOM, min_length=1)
    """A new text: may name {label}, {description}, {keyword}, {style} and {words}."""
    vary: Literal["paraphrase", "blanks"] = Field(default="paraphrase", description="How variations are asked for.")
    paraphrase: str = Field(default=_PARAPHRASE, min_length=1)
    """Names {text} once; may name {label}, {description}, {style} and {words}."""
    blanks: str = Field(default=_BLANKS, min_length=1)
    """Names {text} once, which then has blanks for masked words; may name {blank}, {label}, {description}, {style} and
    {words}."""
    blank: str = Field(default="_", min_length=1, pattern=r"^\S+$", description="Stands for a masked word.")
    masked: float = Field(default=0.5, gt=0, lt=1, description="Probability of a word to be masked.")
    shots: int = Field(default=0, ge=0)
    """blanks: worked examples before each request, masked anew for it with the same probability; 1 and 3 as
    published."""
    examples: Mapping[str, tuple[str, ...]] = {}
    """Public texts of each label that the worked examples are drawn from; {} for none. A key * is for every label
    without its own."""
    keywords: Mapping[str, tuple[str, ...]] = {}
    """Public keywords of each label, one drawn for each new text; {} for none. A key * is for every label without its
    own."""
    styles: tuple[str, ...] = Field(default=_STYLES, min_length=1)
    """Public phrases; one is drawn for each request."""

    @model_validator(mode="after")
    def _templates_name_what_there_is(self) -> "Prompts":
        for name, allowed in _SLOTS.items():
            _require_slots(name, slots(getattr(self, name)), allowed)
        return self

    @model_validator(mode="after")
    def _keywords_are_used(self) -> "Prompts":
        if ("keyword" in slots(self.random)) != bool(self.keywords):
            raise ValueError("the template random must name {keyword} where there are keywords, and only there")
        if not all(self.keywords.values()):
            raise ValueError("each label under keywords needs at least one")
        return self

    @model_validator(mode="after")
    def _examples_are_shown(self) -> "Prompts":
        if self.shots and self.vary != "blanks":
            raise ValueError(f"shots is {self.shots}; only vary blanks shows worked examples, got {self.vary}")
        fewest = min((len(texts) for texts in self.examples.values()), default=0)
        if fewest < self.shots:
            raise ValueError(f"shots is {self.shots}; each label under examples needs as many texts, got {fewest}")
        if not all(text.strip() for texts in self.examples.values() for text in texts):
            raise ValueError("a text under examples is blank")
        return self


def select_for_label(given: Mapping[str, tuple[str, ...]], label: str) -> tuple[str, ...]:
    """Return the entries for a label, or the common entries where it has none of its own.

    >>> select_for_label({"a": ("one",), "*": ("two",)}, "a"), select_for_label({"*": ("two",)}, "b")
    (('one',), ('two',))
    >>> select_for_label({}, "a")
    ()
    """
    return given.get(label) or given.get(ANY_LABEL) or ()


def slots(template: str) -> list[str]:
    """Return the slots that a template names, in order.

    >>> slots("Write {words} words about {label}, in {{braces}}.")
    ['words', 'label']

    Raises:
        ValueError: a brace is unpaired, or a slot is not a plain name.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        raise ValueError(f"the template {template!r} has a brace alone; write it twice to have it as it is") from None
    if any(layout or conversion for _, _, layout, conversion in parts):
        raise ValueError(f"the template {template!r} says how a slot is laid out; leave that out")
    return [slot for _, slot, _, _ in parts if slot is not None]


def _require_slots(name: str, named: list[str], allowed: Collection[str]) -> None:
    if unknown := sorted(set(named) - set(allowed)):
        names = ", ".join("{" + slot + "}" for slot in sorted(allowed))
        raise ValueError(f"the template {name} names {unknown}, which there are not; it may name {names}")
    if "text" in allowed and named.count("text") != 1:
        raise ValueError(f"the template {name} must name {{text}} once")


class Length(Settings):
    """How long texts are asked to be: w = max(least, words of the text + a normal draw); new ones: around `typical`."""

    typical: int = Field(default=30, ge=1, description="Words of a new text, before the draw.")
    least: int = Field(default=10, ge=1, description="Fewest words that are asked for.")
    spread: float = Field(default=10.0, ge=0, description="Standard deviation of the draw, in words.")
    tokens_a_word: float = Field(default=2.0, gt=0)
    """max_tokens of an answer is this many times the words, at most cap."""
    cap: int = Field(default=256, ge=1, description="Largest max_tokens.")


class _Instructed(Settings):
    prompts: Prompts = Prompts()
    length: Length = Length()
    temperature: float = Field(default=1.2, ge=0, le=2, description="Sampling temperature.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus of sampling.")
    tries: int = Field(default=3, ge=1)
    """Times that an unusable answer (empty, cut off, refused, an echo) is asked for."""


class LocalChatSettings(_Instructed):
    """An instruction-following model on this machine."""

    kind: Literal["local"] = Field(description="Who writes.")
    model: str = Field(min_length=1, description="A local folder, or a hub name (name@revision), with a chat template.")
    batch: int = Field(default=16, ge=1, description="Requests that are answered side by side.")


class Price(Settings):
    """The price of tokens, and how much may be spent."""

    read: float = Field(default=0.0, ge=0, description="Price of a million tokens read.")
    written: float = Field(default=0.0, ge=0, description="Price of a million tokens written.")
    most: float | None = Field(default=None, gt=0)
    """Most that one variant may cost over all its runs, in the same currency; null: no limit."""

    def cost(self, read: float, written: float) -> float:
        """Return the cost of so many tokens.

        >>> Price(read=1.0, written=4.0).cost(1_000_000, 500_000)
        3.0
        """
        return (read * self.read + written * self.written) / 1e6


class Connection(Settings):
    """How an OpenAI-compatible endpoint is reached."""

    url: str = Field(min_length=1, description="Base URL, up to and with /v1.")
    model: str = Field(min_length=1, description="The model's name there.")
    key: str | None = None
    """Name of the environment variable with the key; null where none is needed."""
    concurrency: int = Field(default=16, ge=1, description="Requests under way at once.")
    requests_a_minute: float | None = Field(default=None, gt=0, description="Rate limit; null: none.")
    timeout: float = Field(default=120.0, gt=0, description="Seconds until a request counts as lost.")
    retries: int = Field(default=4, ge=0)
    """Times that a lost or failed request is sent again, with growing pauses."""
    most_tokens: int | None = Field(default=None, ge=1)
    """Most tokens, read and written, that one variant may use over all its runs; null: no limit."""
    price: Price = Price()


class _ByEndpoint(_Instructed):
    kind: Literal["endpoint"] = Field(description="Who writes.")


class Endpoint(Connection, _ByEndpoint):
    """An OpenAI-compatible endpoint: vLLM, llama.cpp, `transformers serve` or a vendor's."""

    means: ClassVar[frozenset[str]] = frozenset(Connection.model_fields) - {"url", "model"}


class LocalJudge(Settings):
    """A language model on this machine that judges rows; it needs no chat template."""

    kind: Literal["local"] = Field(description="Where it runs.")
    model: str = Field(min_length=1)
    """A local folder or a hub name (name@revision); of an endpoint its name there."""


class _JudgeByEndpoint(Settings):
    kind: Literal["endpoint"] = Field(description="Where it runs.")


class JudgeEndpoint(Connection, _JudgeByEndpoint):
    """An OpenAI-compatible endpoint that judges rows. IT IS SENT PRIVATE ROWS: test rows, and real demonstrations."""

    may_read_private_rows: bool = False
    """The owner's word that private rows may be sent there: what it keeps of them, no guarantee here covers."""
    chat: bool = True
    """Whether it is asked by chat completions; false: by completions, for a model without a chat template."""
    listed: int = Field(default=20, ge=2)
    """Likeliest first tokens that it lists with log-probabilities: at most what the server allows, 5 with some."""
    context: int = Field(default=4096, ge=64)
    """Positions of its context; a word is counted as two tokens."""

    @model_validator(mode="after")
    def _with_the_owners_word(self) -> "JudgeEndpoint":
        if not self.may_read_private_rows:
            raise ValueError(
                "a judge at an endpoint is sent private test rows and demonstrations: where its operator may have them "
                "say `may_read_private_rows: true`, else let a local model judge"
            )
        return self
