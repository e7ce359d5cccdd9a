"""Declares method fewshot to the rest of the project, with its settings."""

from functools import partial
from typing import Annotated

from pydantic import Field, model_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import TRAINED, Basis, Family, Method, Reads, Resumes, Tools
from palimpsest.methods.shared.settings import Ends, Joint, PublicShares, UnjudgedTextFilters
from palimpsest.models.settings import Words
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import RECORD, Settings, by_json


class FewShotPrompt(Settings):
    """The prompt that the language model reads: a head, then some records; {separator} and {end} may be used."""

    head: str = Field(default="{label}{separator}", min_length=1)
    """Before the records; may name {label} and {description}."""
    shot: str = Field(default="{text}{separator}", min_length=1, description="One record: names {text} once.")
    text_tokens: Annotated[int, by_json(RECORD, 30)] = Field(default=30, ge=1)
    """Tokens kept of a record's text."""
    joint: Joint = " | "
    ends: Ends = "eos"


class FewShotSettings(Settings):
    """How few-shot demonstrations are written (Tang et al. 2024): a fresh sample of records for every token."""

    rows: int = Field(default=4, ge=1, description="Demonstrations of each label.")
    prompts: int = Field(default=10, ge=1, description="Prompts that each token is averaged over, M.")
    shots: int = Field(default=2, ge=1)
    """Expected records in a prompt, one of a person; the sampling rate is M shots over all of them."""
    top_k: int = Field(default=100, ge=1, description="Likeliest tokens in public that may be drawn.")
    max_tokens: Annotated[int, by_json(RECORD, 30)] = Field(default=30, ge=1)
    """Longest demonstration in tokens."""
    prior: PublicShares = None
    micro_batch: int = Field(default=64, ge=1, description="Contexts that one forward pass reads.")
    rounding: float | None = Field(default=None, gt=0)
    """Nats that a logit may move because prompts stand beside others: charged, and listed as an assumption. null:
    nothing; bits are tried on public prompts, and a device that moves a prompt's is refused."""
    checkpoint_tokens: int = Field(default=20, ge=1, description="Tokens that a stopped run may lose.")
    prompt: FewShotPrompt = FewShotPrompt()
    filters: UnjudgedTextFilters

    @model_validator(mode="after")
    def _every_label_has_a_share(self) -> "FewShotSettings":
        if self.prior is not None and min(self.prior.values()) <= 0:
            raise ValueError("prior must hold shares > 0")
        return self


def _plan(settings: FewShotSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest_lab.methods.fewshot.plan import plan

    return plan(settings, schema, budget)


def _build(settings: FewShotSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.shared.filters import public_perplexity
    from palimpsest_lab.methods.fewshot.fit import FewShot

    tokens, batch, quantile = settings.max_tokens, settings.micro_batch, settings.filters.quantile
    measure = partial(public_perplexity, tools, tokens, batch, quantile)
    return FewShot(settings, tools.schema, plan, tools.reader(), tools.kept, measure)


def _worded(words: Words, labelled: bool) -> dict[str, str]:
    head = words.prompt(labelled)
    return {"head": head, "shot": words.prompt_with_example(labelled).removeprefix(head), "ends": "line"}


FEWSHOT = Method(
    name="fewshot",
    stage="private_predict",
    family=Family.WRITES,
    title="One row of the results: demonstrations whose tokens are noisy averages over samples of records.",
    tasks=("classify", "span", "text", "json"),
    settings=FewShotSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.READER, Reads.HELDOUT, Reads.BASE}),
    columns=TRAINED,
    module=__name__,
    baseline=True,
    source="base",
    resumes=Resumes.WAVES,
    worded=_worded,
)
