"""`palimpsest compare`: the variants side by side, from the table that the page shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palimpsest.audit.label_fit import LabelFit
from palimpsest.audit.statistics import Estimate
from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.report import read_table
from palimpsest.cli.scores import CHOICE, is_workspace, require_measured, show_scores
from palimpsest.errors import ParamsError
from palimpsest.report.formats import MISSING, number, percent, shown_epsilon
from palimpsest.report.row import BASELINES, Membership, Row


@dataclass(frozen=True)
class Compared:
    """One variant, or a baseline.

    Attributes:
        role: release, reference, or a baseline: real (the private rows), public_only, public_lm.
        epsilon: proved; None if it has none.
        token_epsilon: of one word, where a method protects only words.
        evaluator: the classifier behind utility and gain; None where none was used.
        utility: its accuracy on real test rows.
        perplexity: of an evaluator that predicts tokens, on the same rows.
        label_fit: how often a classifier of the real rows gives its rows their labels; None for rows without labels.
        gain: the share of the gap from a row of public text only to the private rows that is closed.
        no_gain: why that is unknown.
        attacks: kind -> the strongest attack of that kind.
        verdict: over all attacks.
        conclusion: gain and attacks in words; None if it is no release.
        unsettled: kind of measurement -> why it came to no result.
    """

    variant: str
    role: str
    method: str | None
    epsilon: float | None
    token_epsilon: float | None
    evaluator: str | None
    utility: Estimate | None
    gain: Estimate | None
    no_gain: str | None
    attacks: Mapping[str, Membership]
    verdict: str | None
    conclusion: str | None
    perplexity: Estimate | None = None
    label_fit: LabelFit | None = None
    unsettled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The output of `palimpsest compare --json`. It belongs to the private zone.

    Attributes:
        coming: measurements that are still to be made.
    """

    variants: tuple[Compared, ...]
    coming: tuple[str, ...]


def _show_comparison(workspace: Path, variants: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Print a line for each variant, or for those that are named.

    Raises:
        DataError: nothing was measured yet.
        ParamsError: one that is named was not measured.
    """
    found = compared(workspace, variants)
    if as_json:
        show_json(found)
        return
    out = console()
    show(out, _comparison_table(found.variants))
    for text in _sentences(found):
        out.print(text, markup=False, soft_wrap=True)


def compare_all(workspace: Path, names: Sequence[str], *, plot: Path | None = None, as_json: bool = False) -> None:
    """Compare variants of a workspace, or the workspaces that are named, or draw either.

    Raises:
        ParamsError: some names are workspaces and others are not.
    """
    folders = [Path(name) for name in names if is_workspace(name)]
    if folders and len(folders) < len(names):
        other = next(name for name in names if not is_workspace(name))
        raise ParamsError(f"{other!r} is no workspace, and others are.", "Name workspaces alone, or variants alone.")
    if folders or plot is not None:
        once = list({folder.resolve(): folder for folder in folders}.values())
        show_scores(once or [workspace], () if folders else names, plot=plot, as_json=as_json)
    else:
        _show_comparison(workspace, names, as_json=as_json)


def compared(workspace: Path, variants: Sequence[str] = ()) -> Comparison:
    """Return the comparison as values; no variants means all of them, and the baselines."""
    found = read_table(workspace)
    lines = {row.variant: _compared(row, found.conclusions.get(row.variant)) for row in found.rows}
    require_measured(variants, lines)
    return Comparison(tuple(lines[name] for name in variants or lines), found.coming)


def _comparison_table(lines: Sequence[Compared]) -> Rows:
    """Return a table with a line for each: what was proved, what it is good for, what attacks found."""
    headings = ("variant", "epsilon", "utility", "gain over\npublic text", "attacks")
    rows = [[one.variant, _epsilon(one), _utility(one), _gain(one), _attacks(one)] for one in lines]
    return Rows("Variants", headings, rows, left=("variant", "attacks"), colours=(("refuted", "bold red"),))


def _compared(row: Row, conclusion: str | None) -> Compared:
    """Return a row as compared by the first evaluator, which shares no weights with any generator."""
    score = row.scores[0] if row.scores else None
    baseline = row.role in BASELINES
    return Compared(
        row.variant, row.role, row.method, row.epsilon_proved, row.token_epsilon,
        evaluator=None if score is None else score.evaluator,
        utility=None if score is None else score.accuracy,
        gain=None if score is None or baseline else score.gap_closed,
        no_gain=None if score is None or baseline else score.gap_note,
        attacks=row.audits, verdict=row.verdict, conclusion=conclusion,
        perplexity=None if score is None else score.perplexity,
        label_fit=row.label_fit,
        unsettled=row.unsettled,
    )  # fmt: skip


def _epsilon(one: Compared) -> str:
    return shown_epsilon(one.epsilon, one.token_epsilon, one.role)


def _utility(one: Compared) -> str:
    beside = "" if one.perplexity is None else f"\nperplexity {number(one.perplexity.value)}"
    return f"{_interval(one.utility, 1)}{beside}"


def _gain(one: Compared) -> str:
    return "n/a" if one.no_gain else _interval(one.gain, 0)


def _interval(found: Estimate | None, digits: int) -> str:
    if found is None:
        return MISSING
    return f"{percent(found.value, digits)}\n({100 * found.low:.{digits}f} to {percent(found.high, digits)})"


def _attacks(one: Compared) -> str:
    """Return the verdict, and the strongest attack whose control passed: the others say nothing."""
    sound = [attack for attack in one.attacks.values() if attack.control_passed]
    if not sound:
        return one.verdict or MISSING
    auc = max(sound, key=lambda attack: attack.epsilon_lower).auc
    return f"{one.verdict}\nAUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})"


def _sentences(found: Comparison) -> list[str]:
    evaluator = next((one.evaluator for one in found.variants if one.evaluator), None)
    told = [f"{one.variant}: {one.conclusion}" for one in found.variants if one.conclusion]
    if evaluator is not None:
        told.append(
            f"Utility: accuracy of {evaluator}, trained on the rows, on real test rows. Gain: how much of the gap from "
            "public text alone to the private rows is closed. Intervals are of 95%."
        )
    told += fit_of_labels(found)
    told += [f"n/a, {one.variant}: {one.no_gain}." for one in found.variants if one.no_gain and not one.conclusion]
    told += [
        f"Inconclusive, {one.variant}: {kind.replace('_', ' ')}, because {why}."
        for one in found.variants
        for kind, why in one.unsettled.items()
    ]
    return [*told, CHOICE, *([f"Still to come: {'; '.join(found.coming)}."] if found.coming else [])]


def fit_of_labels(found: Comparison) -> list[str]:
    """Return a sentence on whether rows fit their labels, and what that means."""
    fits = [(one.variant, one.label_fit) for one in found.variants if one.label_fit]
    if not fits:
        return []
    shares = [f"{variant} {_share(fit.synthetic)}" for variant, fit in fits]
    return [
        "Fit of labels: the share of rows to which tfidf_lr, trained on the real rows, gives the label that they bear: "
        f"{', '.join(shares)}; real test rows {_share(fits[0][1].real)}."
    ]


def _share(found: Estimate) -> str:
    return _interval(found, 1).replace("\n", " ")
