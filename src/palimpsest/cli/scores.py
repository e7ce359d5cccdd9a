"""`palimpsest compare WORKSPACE ...`: scores of any number of workspaces, and which differences are noise. Private."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from palimpsest.audit.differences import difference
from palimpsest.audit.statistics import Estimate
from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_text
from palimpsest.params.file import FILE
from palimpsest.params.load import read
from palimpsest.privacy.receipt import read_receipt
from palimpsest.report.formats import MISSING, percent
from palimpsest.report.results import measured
from palimpsest.workspace import INTERNAL, METRICS, RECEIPTS

CHOICE = (
    "To choose by accuracy on real test rows, or by audits, is to choose by private rows: no epsilon counts it, and "
    "nothing is charged for it. A variant of method choose charges its choice. To choose by public scores "
    "(dataset.public_test), or by synthetic rows alone, is free."
)
RULE = (
    "≈ names rows of the same workspace whose difference may be noise: its 95% interval, by the normal approximation "
    "from both intervals as if they were independent, holds 0. All are scored on the same test rows, so a paired "
    "interval would mostly be narrower. The best of many looks better than it is."
)


@dataclass(frozen=True)
class Scored:
    """What one evaluator says of one row.

    Attributes:
        workspace: as it was named.
        variant: or a baseline: real, public_only, public_lm.
        method: None of a baseline.
        epsilon: proved, by its receipt; None of what has none.
        accuracy: on real test rows, with its 95 % interval.
    """

    workspace: str
    variant: str
    method: str | None
    epsilon: float | None
    evaluator: str
    accuracy: Estimate


@dataclass(frozen=True)
class Difference:
    """Two rows of one workspace by one evaluator.

    Attributes:
        value: the first's accuracy minus the second's, with its 95 % interval.
        noise: whether that interval holds 0.
    """

    workspace: str
    evaluator: str
    first: str
    second: str
    value: Estimate
    noise: bool


@dataclass(frozen=True)
class Scores:
    """What `palimpsest compare WORKSPACE ... --json` prints."""

    zone: str
    scores: tuple[Scored, ...]
    differences: tuple[Difference, ...]
    rule: str
    choice: str


def is_workspace(name: str) -> bool:
    """Whether an argument of `compare` names a folder with a params.yaml, and not a variant."""
    return (Path(name) / FILE).is_file()


def show_scores(
    workspaces: Sequence[Path], variants: Sequence[str] = (), *, plot: Path | None = None, as_json: bool = False
) -> None:
    """Print a line for each row of the workspaces, or for those that are named; draw them where a file is named.

    Raises:
        DataError: nothing was measured yet.
        ParamsError: a workspace has no params.yaml, or the file for the drawing is no SVG.
    """
    if plot is not None and plot.suffix != ".svg":
        raise ParamsError(f"--plot is {str(plot)!r}.", "Name a file that ends with .svg.")
    found = scores_of(workspaces, variants)
    if plot is not None:
        write_text(plot, _drawn(found.scores))
    if as_json:
        show_json(found)
        return
    out = console()
    show(out, _table(found))
    for text in (RULE, CHOICE, *([f"written: {plot}; it is private, as the test rows are"] if plot else [])):
        out.print(text, markup=False, soft_wrap=True)


def score_file(workspace: Path, variant: str) -> Path:
    """Where the scores of a variant, or a baseline, lie once it was evaluated."""
    return workspace / METRICS / variant / "utility.json"


def scores_of(workspaces: Sequence[Path], variants: Sequence[str] = ()) -> Scores:
    """The same as values."""
    found = tuple(
        one for workspace in workspaces for one in _scored(workspace) if not variants or one.variant in variants
    )
    if not found:
        raise DataError("Nothing was scored there yet.", "Run `palimpsest run`, or `palimpsest sweep`, first.")
    return Scores(INTERNAL, found, tuple(_differences(found)), RULE, CHOICE)


def _scored(workspace: Path) -> Iterator[Scored]:
    """The scores as they lie, of the variants that run and the baselines."""
    params = read(workspace)
    for variant, path in ((name, score_file(workspace, name)) for name in measured(params)):
        row = params.variants.get(variant)
        told = read_json(path)["evaluators"] if path.is_file() else {}
        for evaluator, body in told.items():
            accuracy = Estimate(body["accuracy"], body["low"], body["high"])
            method = None if row is None else row.method
            yield Scored(str(workspace), variant, method, _epsilon(workspace, variant), evaluator, accuracy)


def _epsilon(workspace: Path, variant: str) -> float | None:
    receipt = workspace / RECEIPTS / f"{variant}.json"
    return read_receipt(receipt).epsilon if receipt.is_file() else None


def _differences(found: Sequence[Scored]) -> Iterator[Difference]:
    for first, second in combinations(found, 2):
        if (first.workspace, first.evaluator) == (second.workspace, second.evaluator):
            value = difference(first.accuracy, second.accuracy)
            noise = value.low <= 0.0 <= value.high
            yield Difference(first.workspace, first.evaluator, first.variant, second.variant, value, noise)


def _table(found: Scores) -> Rows:
    evaluators = tuple(dict.fromkeys(one.evaluator for one in found.scores))
    headings = ("workspace", "variant", "method", "epsilon", *evaluators)
    lines: dict[tuple[str, str], dict[str, Scored]] = {}
    for one in found.scores:
        lines.setdefault((one.workspace, one.variant), {})[one.evaluator] = one
    rows = [
        [*_head(next(iter(by.values()))), *(_cell(found, by[name]) if name in by else MISSING for name in evaluators)]
        for by in lines.values()
    ]
    return Rows("Accuracy on real test rows", headings, rows, ("workspace", "variant", "method"))


def _head(one: Scored) -> list[str]:
    return [one.workspace, one.variant, one.method or MISSING, MISSING if one.epsilon is None else f"{one.epsilon:.3f}"]


def _cell(found: Scores, one: Scored) -> str:
    accuracy = one.accuracy
    alike = [
        pair.second if pair.first == one.variant else pair.first
        for pair in found.differences
        if pair.noise
        and (pair.workspace, pair.evaluator) == (one.workspace, one.evaluator)
        and one.variant in (pair.first, pair.second)
    ]
    said = f"{percent(accuracy.value)}\n({100 * accuracy.low:.1f} to {percent(accuracy.high)})"
    return f"{said}\n≈ {', '.join(alike)}" if alike else said


def _drawn(found: Sequence[Scored]) -> str:
    from palimpsest.reproduce.table import charted

    return charted("Accuracy on real test rows", [_point(one) for one in found])


def _point(one: Scored) -> dict[str, Any]:
    epsilon = "" if one.epsilon is None else f", epsilon {one.epsilon:.3g}"
    return {"data": one.workspace, "row": f"{one.variant}{epsilon}", "whose": one.evaluator, **asdict(one.accuracy)}
