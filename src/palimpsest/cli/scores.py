"""`palimpsest compare WORKSPACE ...`: scores of any number of workspaces, and which differences are noise. Private."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from palimpsest.audit.inconclusive import inconclusive
from palimpsest.audit.statistics import Estimate, difference
from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.report import as_written
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_text
from palimpsest.params.file import FILE
from palimpsest.params.load import read
from palimpsest.privacy.receipt import read_receipt
from palimpsest.report.formats import MISSING, percent, shown_epsilon
from palimpsest.report.results import measured
from palimpsest.workspace import INTERNAL, METRICS, RECEIPTS

CHOICE = (
    "To choose by accuracy on real test rows, or by audits, is to choose by private rows: no epsilon counts it, and "
    "nothing is charged for it. A variant of method choose charges its choice. To choose by public scores "
    "(dataset.public_test), or by synthetic rows alone, is free."
)
_RULE = (
    "≈ names rows of the same workspace whose difference may be noise: its 95% interval, by the normal approximation "
    "from both intervals as if they were independent, holds 0. All are scored on the same test rows, so a paired "
    "interval would mostly be narrower. The best of many looks better than it is."
)

_Place = tuple[str, str, str]


@dataclass(frozen=True)
class Scored:
    """The score of one row by one evaluator.

    Attributes:
        workspace: as it was named.
        variant: or a baseline: real, public_only, public_lm.
        role: by its receipt, release or reference; for a baseline its name.
        method: None for a baseline.
        epsilon: proved, by its receipt; None if it has none.
        token_epsilon: of one word, where a method protects only words.
        accuracy: on real test rows, with its 95 % interval.
    """

    workspace: str
    variant: str
    role: str
    method: str | None
    epsilon: float | None
    token_epsilon: float | None
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
class _Scores:
    """The output of `palimpsest compare WORKSPACE ... --json`."""

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
        ParamsError: a workspace has no params.yaml, a named row was never measured, or the drawing is no SVG.
    """
    if plot is not None and plot.suffix != ".svg":
        raise ParamsError(f"--plot is {str(plot)!r}.", "Name a file that ends with .svg.")
    found = _scores_of(workspaces, variants)
    if plot is not None:
        write_text(plot, _drawn(found.scores))
    if as_json:
        show_json(found)
        return
    out = console()
    show(out, _table(found))
    for text in (_RULE, CHOICE, *([f"written: {plot}; it is private, as the test rows are"] if plot else [])):
        out.print(text, markup=False, soft_wrap=True)


def score_file(workspace: Path, variant: str) -> Path:
    """Return the file of the scores of a variant, or a baseline, once it was evaluated."""
    return workspace / METRICS / variant / "utility.json"


def _scores_of(workspaces: Sequence[Path], variants: Sequence[str] = ()) -> _Scores:
    """Return the scores of the workspaces as values."""
    every = [one for workspace in workspaces for one in _scored(workspace)]
    if not every:
        raise DataError("Nothing was scored there yet.", "Run `palimpsest run`, or `palimpsest sweep`, first.")
    require_measured(variants, dict.fromkeys(one.variant for one in every))
    found = tuple(one for one in every if not variants or one.variant in variants)
    return _Scores(INTERNAL, found, tuple(_differences(found)), _RULE, CHOICE)


def require_measured(variants: Sequence[str], measured: Collection[str]) -> None:
    """Refuse a name that was not measured.

    Raises:
        ParamsError: there is one.
    """
    for name in variants:
        if name not in measured:
            raise ParamsError(
                f"VARIANT is {name!r}, which was not measured.", f"Name some of {', '.join(measured)}, or none for all."
            )


def _scored(workspace: Path) -> Iterator[Scored]:
    """Yield the scores on disk of the variants that run and the baselines."""
    params = read(workspace)
    for variant, path in ((name, score_file(workspace, name)) for name in measured(params)):
        if not path.is_file():
            continue
        row, (role, epsilon, token_epsilon) = params.variants.get(variant), _proved(workspace, variant)
        method = None if row is None else row.method
        for evaluator, accuracy in _accuracies(path).items():
            yield Scored(str(workspace), variant, role, method, epsilon, token_epsilon, evaluator, accuracy)


def _accuracies(path: Path) -> dict[str, Estimate]:
    """Return evaluator -> accuracy; empty where there is no result."""
    with as_written(path):
        body = read_json(path)
        told = {} if inconclusive(body) else body["evaluators"]
        return {name: Estimate(body["accuracy"], body["low"], body["high"]) for name, body in told.items()}


def _proved(workspace: Path, variant: str) -> tuple[str, float | None, float | None]:
    """Return the role, epsilon and the epsilon of one word, by the receipt."""
    path = workspace / RECEIPTS / f"{variant}.json"
    if not path.is_file():
        return variant, None, None
    receipt = read_receipt(path)
    return receipt.purpose, receipt.epsilon, (receipt.plan or {}).get("token_epsilon")


def _differences(found: Sequence[Scored]) -> Iterator[Difference]:
    for first, second in combinations(found, 2):
        if (first.workspace, first.evaluator) == (second.workspace, second.evaluator):
            value = difference(first.accuracy, second.accuracy)
            noise = value.low <= 0.0 <= value.high
            yield Difference(first.workspace, first.evaluator, first.variant, second.variant, value, noise)


def _table(found: _Scores) -> Rows:
    evaluators = tuple(dict.fromkeys(one.evaluator for one in found.scores))
    headings = ("workspace", "variant", "method", "epsilon", *evaluators)
    alike, lines = _alike(found.differences), dict[tuple[str, str], dict[str, Scored]]()
    for one in found.scores:
        lines.setdefault((one.workspace, one.variant), {})[one.evaluator] = one
    rows = [
        [
            *_head(next(iter(by.values()))),
            *(_cell(by[name], alike.get((*line, name), ())) if name in by else MISSING for name in evaluators),
        ]
        for line, by in lines.items()
    ]
    return Rows("Accuracy on real test rows", headings, rows, ("workspace", "variant", "method"))


def _head(one: Scored) -> list[str]:
    return [one.workspace, one.variant, one.method or MISSING, _epsilon(one)]


def _epsilon(one: Scored) -> str:
    return shown_epsilon(one.epsilon, one.token_epsilon, one.role)


def _alike(differences: Sequence[Difference]) -> dict[_Place, list[str]]:
    """Return (workspace, row, evaluator) -> the rows from which it may differ only by noise."""
    found = defaultdict[_Place, list[str]](list)
    for pair in differences:
        if pair.noise:
            found[pair.workspace, pair.first, pair.evaluator].append(pair.second)
            found[pair.workspace, pair.second, pair.evaluator].append(pair.first)
    return found


def _cell(one: Scored, alike: Sequence[str]) -> str:
    accuracy = one.accuracy
    said = f"{percent(accuracy.value)}\n({100 * accuracy.low:.1f} to {percent(accuracy.high)})"
    return f"{said}\n≈ {', '.join(alike)}" if alike else said


def _drawn(found: Sequence[Scored]) -> str:
    from palimpsest.report.drawing import charted

    return charted("Accuracy on real test rows", [_point(one) for one in found])


def _point(one: Scored) -> dict[str, Any]:
    epsilon = " ".join(_epsilon(one).split())
    row = one.variant if epsilon == MISSING else f"{one.variant}, epsilon {epsilon}"
    return {"data": one.workspace, "row": row, "whose": one.evaluator, **asdict(one.accuracy)}
