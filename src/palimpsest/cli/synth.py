"""`palimpsest synth`: from a file to rows, with the steps of `init`, `plan`, `run` and `report`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from palimpsest.cli.context import open_workspace
from palimpsest.cli.decisions import DataSource, Decided, params_text
from palimpsest.cli.init import check_source, find_copies, fit_to_public, init_workspace
from palimpsest.cli.plan import show_plan, summarise_plan
from palimpsest.cli.run import may_charge, run_workspace
from palimpsest.cli.sample import list_showable, show_sample
from palimpsest.errors import ParamsError
from palimpsest.files import read_json
from palimpsest.params.file import FILE
from palimpsest.params.load import file_of, read, read_written
from palimpsest.privacy.shown import down, up
from palimpsest.records.sources import describe_origin
from palimpsest.workspace import ORIGINS, SYNTHETIC

_DECIDED = ("privacy", "models", "lms", "taught", "decoders", "variants")  # beside the data set


def synthesise(decided: Decided, folder: Path | None, *, yes: bool, anyway: bool = False) -> int:
    """Make the workspace if there is none, show its plan, ask, run it, print some rows; return the status of `run`.

    A folder with a workspace of the same decisions is continued: what is up to date costs nothing.

    Args:
        folder: where; None for one named after the asset, in the current one.
        yes: charge without asking. A second charge is asked about all the same.
        anyway: charge also where noise is expected to decide.

    Raises:
        PalimpsestError: an option or a file is wrong, the folder has another workspace, or nobody can be asked.
    """
    source = decided.source
    workspace = folder or Path(f"{source.asset}-workspace")
    if (workspace / FILE).exists():
        source = _use_copies(source, workspace)
        _require_same(workspace, fit_to_public(source) if decided.check else source)
        check_source(source)
        print(f"going on with the workspace {workspace}, which this line has made before")
    else:
        init_workspace(workspace, source, force=False, check=decided.check)
    show_plan(workspace)
    if any(line.cost.may_be_paid for line in summarise_plan(open_workspace(workspace)).lines):
        print("The file is read first, which charges nothing, to see whether its rows were charged before.", flush=True)
        if code := run_workspace(workspace, ["preprocess"], ui=False, stay=False, workers=0):
            return code
        show_plan(workspace)
    if not _may_charge(workspace, yes=yes):
        print(f"Nothing ran and nothing was charged. The workspace {workspace} stays; the same line asks again.")
        return 1
    show = partial(_show_first, workspace)
    code = run_workspace(workspace, [], ui=False, stay=False, workers=0, anyway=anyway, then=show)
    if code == 0:
        _show_rows(workspace)
        print(f"{workspace / 'README.md'} says what the folders hold, what may be shared, and how to go on.")
    return code


def _use_copies(source: DataSource, workspace: Path) -> DataSource:
    """Return the source with the workspace's copies of tables, where those are from the same places."""
    known = read_json(workspace / ORIGINS) if (workspace / ORIGINS).exists() else {}
    for name, path in find_copies(source, workspace).items():
        if describe_origin(getattr(source, name)).items() <= known.get(path.name, {}).items():
            source = replace(source, **{name: path})
    return source


def _require_same(workspace: Path, source: DataSource) -> None:
    """Raise ParamsError if the workspace was made by other decisions. What was added to it since does not matter."""
    there, wanted = (
        file.model_dump(exclude_unset=True) for file in (read_written(workspace), file_of(params_text(source)))
    )
    data = [f"dataset.{key}" for key in _list_differing(there["dataset"], wanted["dataset"])]
    other = [*data, *(name for name in _DECIDED if not _contains(there.get(name), wanted.get(name, {})))]
    if other:
        raise ParamsError(
            f"{str(workspace)!r} has a workspace already, and this line says otherwise: {', '.join(other)}.",
            f"Go on with it as it is: `palimpsest run -w {workspace}`. For another one, name another --dir.",
        )


def _list_differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*there, *wanted}) if there.get(key) != wanted.get(key)]


def _contains(there: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; there may be more."""
    if not isinstance(wanted, Mapping):
        return bool(there == wanted)
    known = there if isinstance(there, Mapping) else {}
    return all(_contains(known.get(key), value) for key, value in wanted.items())


def _may_charge(workspace: Path, *, yes: bool) -> bool:
    """Ask whether to charge what the plan says; where it charges nothing, or does not fit, there is nothing to ask.

    Raises:
        LedgerError: there is no terminal, and no `yes`.
    """
    plan = summarise_plan(open_workspace(workspace))
    asked = plan.after - plan.spent
    if yes or round(asked, 6) <= 0 or not plan.fits:
        return True
    charge = f"epsilon {up(asked)} of the {down(plan.left)} that is left of the budget of {plan.asset}"
    return may_charge("This run", charge, "The workspace is made, and nothing was charged.")


def _show_first(workspace: Path) -> None:
    _show_rows(workspace)
    print("\nThe rows are made. Audits of them follow; Ctrl-C stops these, and the same line goes on.", flush=True)


def _show_rows(workspace: Path) -> None:
    for name in list_showable(read(workspace), workspace):
        print(f"\nSome rows of {name}, all in {workspace / SYNTHETIC / f'{name}.jsonl'}:")
        show_sample(workspace, name)
