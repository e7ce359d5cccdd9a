"""How a cell is measured: by which stage, in which file, and where the value stands in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.audit.inconclusive import read_inconclusive
from palimpsest.files import read_json
from palimpsest.workspace import METRICS, MODEL_METRICS, SECONDS
from palimpsest_lab.reproduce.cells import Cell
from palimpsest_lab.reproduce.grid import Body

HOURS = "seconds"  # no metric: kept by the workspace for display
_NO_JUDGE = "the judge fails its control: real demonstrations do not help it"
_BLIND = "the judge fails its control: it does not know a record that it has just read"
_INSTEAD = ("minilm_lr", "tfidf_lr")  # classifiers of this house, where the requested one is not here


@dataclass(frozen=True)
class Value:
    """A measured value."""

    value: float | None  # in the unit of the measure; None where nothing could be measured
    low: float | None = None  # low and high: ends of the 95 % interval, where there is one
    high: float | None = None
    note: str = ""  # why there is no value, or what replaced the requested one


@dataclass(frozen=True)
class Measure:
    """One way of measuring."""

    stage: str  # of a variant, without its name
    file: str  # the metric file that it leaves; `HOURS` for the time that the rows and their model took
    read: Callable[[Body, Body], Value]  # (the file's values, the cell's request) -> the value
    baseline: str | None = None  # the stage of a row that is no variant, with its name; None where it is the same
    of_model: bool = False  # whether it measures the language model that a variant is drawn from
    runs: str = ""  # the key of `runs` in params.yaml that has to name the variant, if one does


def _accuracy(body: Body, detail: Body) -> Value:
    asked = str(detail["evaluator"])
    name = next((name for name in (asked, *_INSTEAD) if name in body["evaluators"]), None)
    if name is None:
        return Value(None, note=f"{asked} did not run")
    found, note = body["evaluators"][name], "" if name == asked else f"by {name}: --judge names no classifier"
    return Value(found["accuracy"], found["low"], found["high"], note)


def _read_in_context(body: Body, detail: Body) -> Value:
    shots = int(detail["shots"])
    answered = next((one for one in (body["zero_shot"], *body["shots"]) if one["shots"] == shots), None)
    if answered is None or answered["lacks"] == "demonstrations":
        return Value(None, note=f"there are fewer than {shots} demonstrations")
    if answered["accuracy"] is None:
        return Value(None, note=f"the judge's context holds no {shots} demonstrations")
    return Value(**answered["accuracy"], note=_NO_JUDGE if body.get("judges") is False else "")


def _forest(body: Body, _detail: Body) -> Value:
    found = body["separation"]
    return Value(found["accuracy"], found["low"], found["high"])


def _ngrams(body: Body, detail: Body) -> Value:
    found = body["orders"].get(str(detail["order"]))
    return Value(None, note="audit.orders leaves it out") if found is None else Value(found["trained"]["rate"])


def _prompts(body: Body, detail: Body) -> Value:
    """Read the attack behind the row's own texts, or its control."""
    found = body["shown"]["attack"] if detail["behind"] == "member" else body["attacks"]["prompt"]
    return Value(found["auc"], found["low"], found["high"], "" if body["shown"]["works"] else _BLIND)


def _clipping(body: Body, detail: Body) -> Value:
    return Value(body[detail["way"]][body["clips"].index(detail["clip"])])


def _hours(body: Body, _detail: Body) -> Value:
    if not body["seconds"]:
        return Value(None, note="its stages ran elsewhere, and their times stayed there")
    return Value(sum(body["seconds"]) / 3600.0, note=f"on {max(body['cores'])} cores, of the last attempts alone")


def _rate(field: str) -> Callable[[Body, Body], Value]:
    return lambda body, _: Value(body[field]["rate"], body[field]["low"], body[field]["high"])


def _round(body: Body, detail: Body) -> Any:
    rounds = body[detail["of"]]
    return rounds[min(int(detail["round"]), len(rounds)) - 1]


def _distance(body: Body, detail: Body) -> Value:
    found = next((one for one in _round(body, {**detail, "of": "rounds"}) if one["name"] == detail["distance"]), None)
    return Value(None, note="too few texts to compare") if found is None else Value(found["value"])


def _votes(body: Body, detail: Body) -> Value:
    every = _round(body, {**detail, "of": "votes"})
    return Value(float(every[0][detail["field"]])) if every else Value(None, note="exact votes are not known")


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("downstream_eval", "utility", _accuracy, "baseline_eval"),
    "in_context": Measure(
        "incontext_eval", "incontext", _read_in_context, "incontext_baseline@real", runs="in_context"
    ),
    "forest": Measure("embedding_audit", "", _forest, "embedding_audit@base", of_model=True, runs="embedding_audit"),
    "lm_loss": Measure(
        "embedding_audit", "", lambda body, _: Value(body["lm_loss"]), "embedding_audit@base", of_model=True,
        runs="embedding_audit",
    ),
    "ngrams": Measure("ngram_audit", "ngrams", _ngrams),
    "prompts": Measure("prompt_mia", "prompt_membership", _prompts, runs="prompt_mia"),
    "clipping": Measure("clipping_audit", "clipping", _clipping, runs="clipping_audit"),
    "parses": Measure("structure_audit", "structure", _rate("parsed")),
    "validates": Measure("structure_audit", "structure", _rate("valid")),
    "fidelity": Measure(
        "fidelity_audit", "fidelity", lambda body, detail: Value(body["measures"][detail["distance"]]["value"]),
        runs="audit",
    ),
    "words": Measure(
        "fidelity_audit", "fidelity", lambda body, detail: Value(body["diversity"][detail["of"]]["words"]),
        runs="audit",
    ),
    "distance_by_round": Measure("eda_audit", "evolution", _distance, runs="eda_audit"),
    "votes_by_round": Measure("eda_audit", "evolution", _votes, runs="eda_audit"),
    "hours": Measure("downstream_eval", HOURS, _hours),
    "noise": Measure("", "", lambda body, detail: Value(float(body[detail["number"]]))),
}  # fmt: skip


def measure(cell: Cell) -> Measure:
    """Return how a cell is measured."""
    return MEASURES[cell.measured.measure]


def is_planned(cell: Cell) -> bool:
    """Tell whether its value is one of the plan's, for which nothing runs."""
    return not measure(cell).stage


def needs_judge(cell: Cell) -> bool:
    """Tell whether a language model answers behind demonstrations for it."""
    return cell.measured.measure in ("in_context", "prompts")


def target(cell: Cell, drawn: Mapping[str, str]) -> str:
    """Return the stage to run for a cell, as DVC names it.

    Args:
        drawn: variant of dp_lm -> the language model that it is drawn from.
    """
    how = measure(cell)
    if cell.of.baseline is not None and how.baseline is not None:
        return how.baseline
    return f"{how.stage}@{subject(cell, drawn)}"


def subject(cell: Cell, drawn: Mapping[str, str]) -> str:
    """Return the measured subject: the variant, or the language model below it."""
    return drawn.get(cell.variant, cell.variant) if measure(cell).of_model else cell.variant


def read(cell: Cell, workspace: Path, drawn: Mapping[str, str]) -> Value | None:
    """Read the measured value of a cell from a workspace; None where it has not been measured."""
    how, name = measure(cell), subject(cell, drawn)
    if how.file == HOURS:
        return how.read(_times(cell.variant, workspace, drawn), cell.detail)
    place = MODEL_METRICS / f"{name}.json" if how.of_model else METRICS / name / f"{how.file}.json"
    if not (workspace / place).is_file():
        return None
    body = read_json(workspace / place)
    why = read_inconclusive(body)
    return Value(None, note=f"inconclusive, because {why.inconclusive}") if why else how.read(body, cell.detail)


def _times(variant: str, workspace: Path, drawn: Mapping[str, str]) -> Body:
    """Return seconds and cores of the stages that made a variant's rows, including the training of its model."""
    stages = (f"fit@{variant}", f"pplm_generate@{variant}", f"dp_train@{drawn.get(variant, '')}")
    files = [workspace / SECONDS / f"{stage}.json" for stage in stages]
    told = [read_json(file) for file in files if file.is_file()]
    return {key: [one[key] for one in told] for key in ("seconds", "cores")}
