"""The lab's keys of params.yaml: of its exhibits, and of a judge that answers behind demonstrations."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import Field

from palimpsest.errors import ParamsError
from palimpsest.models.chat.settings import JudgeEndpoint, LocalJudge
from palimpsest.models.settings import Words
from palimpsest.params.file import RUN, RUNS, Keys
from palimpsest.records.vouched import PublicSource
from palimpsest.settings import Settings
from palimpsest_lab.audits.incontext_settings import InContext

if TYPE_CHECKING:
    from palimpsest.params.schema import Params

Own = TypeVar("Own", bound=Settings)


class SeparationSettings(Settings):
    """How well the states of a language model tell the labels apart."""

    rows: int = Field(default=1000, ge=20)
    """Private rows that are read of the training and of the test part, at most."""
    max_tokens: int = Field(default=64, ge=1, description="Tokens kept of a text.")
    trees: int = Field(default=200, ge=10, description="Trees of the random forest.")
    projections: tuple[Literal["pca", "umap"], ...] = ("pca", "umap")
    """Pictures of the test rows' states."""


class PromptAttack(Settings):
    """An attack on a judge's answers behind one row (runs.prompt_mia)."""

    draws: int = Field(default=20, ge=1)
    """Synthetic rows, one at a time, behind which every audit record is asked about."""
    shown: int = Field(default=100, ge=10)
    """Members, at most, that are asked about behind themselves: the control, which the attack must find."""


class LabModels(Settings):
    """The judge."""

    judge: Annotated[LocalJudge | JudgeEndpoint, Field(discriminator="kind")] | None = None
    """Language model that answers test rows behind demonstrations (runs.in_context); null: that of `models.lm`."""


class LabUtility(Settings):
    """The judge's task."""

    in_context: InContext | None = None
    """Answering in context: `models.judge` reads rows as demonstrations; null: not asked."""


class LabAudit(Settings):
    """Exhibits and an attack."""

    separation: SeparationSettings = SeparationSettings()
    prompts: PromptAttack = PromptAttack()


class LabRuns(Settings):
    """Names of what is measured only when it is asked for."""

    evolution_audit: tuple[str, ...] = ()
    """Variants of evolve whose rounds are compared with the private rows, one by one."""
    eda_audit: tuple[str, ...] = ()
    """The same, of embed."""
    facts_audit: tuple[str, ...] = ()
    """Variants whose rows are searched for the facts of the invented world."""
    embedding_audit: tuple[str, ...] = ()
    """Language models whose states are examined, base among them; needs labels."""
    clipping_audit: tuple[Literal["base"], ...] = ()
    """[base] asks how far clipping the public language model's logits moves what private contexts agree on."""
    shadow_mia: tuple[str, ...] = ()
    """Variants of dp_lm that are attacked with shadow models too: slow, for it trains several."""
    prompt_mia: tuple[str, ...] = ()
    """Variants whose rows stand, one at a time, before the audit records: needs labels, utility.in_context and a judge
    on this machine."""
    in_context: tuple[str, ...] = ()
    """Rows that stand as demonstrations before test items; needs utility.in_context."""


class LabRun(Settings):
    """Names that the lab's stages are repeated for."""

    evolution_audit: tuple[str, ...] = ()
    eda_audit: tuple[str, ...] = ()
    facts_audit: tuple[str, ...] = ()
    embedding_audit: tuple[str, ...] = ()  # language models, base (the public one) among them
    in_context_baseline: tuple[Literal["real"], ...] = ()  # [real] where in_context names rows: what the model can do
    in_context: tuple[str, ...] = ()
    shadow_mia: Mapping[str, str] = {}  # each with its fitted model
    prompt_mia: tuple[str, ...] = ()
    clipping_audit: tuple[Literal["base"], ...] = ()


def models_of(params: "Params") -> LabModels:
    """Return the section `models` with the lab's keys."""
    return _part(params.models, LabModels)


def utility_of(params: "Params") -> LabUtility:
    """Return the section `utility` with the lab's keys."""
    return _part(params.utility, LabUtility)


def audit_of(params: "Params") -> LabAudit:
    """Return the section `audit` with the lab's keys."""
    return _part(params.audit, LabAudit)


def run_of(params: "Params") -> LabRun:
    """Return the section `run` with the lab's keys."""
    return _part(params.run, LabRun)


def _part(section: Settings, own: type[Own]) -> Own:
    return cast(Own, section)  # `Keys.sections` has made the one a subclass of the other


def _run(runs: Any, run: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(runs.shadow_mia) - set(run["dp_lm"])):
        raise ParamsError(
            f"runs.shadow_mia is {unknown[0]!r}.", f"Allowed here: {', '.join(run['dp_lm']) or 'nothing yet'}."
        )
    return {
        "evolution_audit": list(runs.evolution_audit),
        "eda_audit": list(runs.eda_audit),
        "facts_audit": list(runs.facts_audit),
        "embedding_audit": list(runs.embedding_audit),
        "in_context_baseline": ["real"] if runs.in_context else [],
        "in_context": list(runs.in_context),
        "shadow_mia": {name: run["dp_lm"][name] for name in runs.shadow_mia},
        "prompt_mia": list(runs.prompt_mia),
        "clipping_audit": list(runs.clipping_audit),
    }


def _words(words: Words) -> dict[tuple[str, str], dict[str, str]]:
    return {("utility", "in_context"): {"item": words.question}}


def _problems(params: "Params") -> Iterator[str]:
    from palimpsest.params.checks import find_unknown

    run = run_of(params)
    known = [*params.run.dp_train, "base"]
    yield from find_unknown("run.embedding_audit", run.embedding_audit, "run.dp_train, and base", known)
    for name, model in run.shadow_mia.items():
        if params.run.dp_lm.get(name) != model:
            yield f"run.shadow_mia has {name}: {model}; allowed are the pairs of run.dp_lm"
    yield from find_unknown("run.evolution_audit", run.evolution_audit, "run.private_evolve", params.run.private_evolve)
    yield from find_unknown("run.eda_audit", run.eda_audit, "run.eda_evolve", params.run.eda_evolve)
    facts = params.run.evaluate if params.world else ()
    yield from find_unknown("run.facts_audit", run.facts_audit, "run.evaluate, where `world` is set", facts)
    yield from _check_in_context(params)
    yield from _check_prompt_mia(params)


def _check_in_context(params: "Params") -> Iterator[str]:
    from palimpsest.params.checks import find_unknown

    run, settings = run_of(params), utility_of(params).in_context
    judge = models_of(params).judge
    public = params.at_epsilon_0 if params.dataset.labels else ()
    section = "run.evaluate, and where there are labels the rows at epsilon 0"
    yield from find_unknown("run.in_context", run.in_context, section, [*params.run.evaluate, *public])
    if bool(run.in_context) > bool(run.in_context_baseline):
        yield "run.in_context names rows; run.in_context_baseline must then be [real], got []"
    if run.in_context_baseline and settings is None:
        yield "run.in_context_baseline is [real]; utility.in_context must then be filled in, got null"
    if run.in_context_baseline and params.dataset.label is None:
        yield f"run.in_context_baseline is [real]; task {params.dataset.task} has no label to ask for"
    if run.in_context_baseline and not params.dataset.labels and isinstance(judge, JudgeEndpoint):
        yield f"models.judge is an endpoint, which chooses among labels; task {params.dataset.task} needs kind: local"
    if settings is not None:
        settings.words(tuple(params.dataset.labels))


def _check_prompt_mia(params: "Params") -> Iterator[str]:
    from palimpsest.params.checks import find_unknown

    named, judge = run_of(params).prompt_mia, models_of(params).judge
    yield from find_unknown("run.prompt_mia", named, "run.evaluate", params.run.evaluate)
    if not named:
        return
    if utility_of(params).in_context is None:
        yield "run.prompt_mia names variants; utility.in_context must then be filled in, got null"
    if not params.dataset.labels:
        yield f"run.prompt_mia names variants; task {params.dataset.task} has no public list of labels to choose among"
    if isinstance(judge, JudgeEndpoint):
        yield (
            "run.prompt_mia names variants; models.judge must then be kind: local or null, got an endpoint, which does "
            "not give the probability of every label and would be sent training rows"
        )


def _warnings(params: "Params") -> Iterator[str]:
    judge = models_of(params).judge
    if run_of(params).in_context_baseline and isinstance(judge, JudgeEndpoint):
        yield (
            f"models.judge: PRIVATE ROWS ARE SENT to the endpoint of {judge.model!r}, by the owner's word: no "
            "guarantee covers what it keeps of them."
        )


def _reads_base(params: "Params") -> bool:
    run = run_of(params)
    judged = (run.in_context_baseline or run.prompt_mia) and models_of(params).judge is None
    return bool(judged or run.embedding_audit or run.clipping_audit)


def _sources(params: "Params") -> Iterator[PublicSource]:
    judge = models_of(params).judge
    if judge is not None:
        kind: Literal["model", "endpoint"] = "model" if judge.kind == "local" else "endpoint"
        yield PublicSource("models.judge.model", kind, judge.model, bool(run_of(params).in_context_baseline))


KEYS = Keys(
    sections={"models": LabModels, "utility": LabUtility, "audit": LabAudit, RUNS: LabRuns, RUN: LabRun},
    run=_run,
    fits=lambda runs: runs.embedding_audit,
    words=_words,
    problems=_problems,
    warnings=_warnings,
    reads_base=_reads_base,
    models={"models.judge": "models.judge.model"},
    sources=_sources,
)
