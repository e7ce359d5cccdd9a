"""`python -m flows WORKSPACE [TARGET ...] [--serve]`: the flow, or its schedule, in a process of its own."""

import argparse
import os
import sys
from pathlib import Path

from flows.environment import WATCHED, apply_environment
from palimpsest.files import restrict_to_owner
from palimpsest.work.repro import STOPPED, silence_dvc
from stages.common import end_with_parent


def main() -> int:
    """Run the flow; 0 if every stage is up to date, 130 after Ctrl-C, else 1."""
    arguments = _parser().parse_args()
    if os.environ.pop(WATCHED, None):
        end_with_parent()
    with restrict_to_owner():
        return _serve(arguments) if arguments.serve else _run(arguments)


def _serve(given: argparse.Namespace) -> int:
    apply_environment(given.workspace)
    from flows.serve import serve

    serve(given.workspace, given.cron, given.workers, given.targets, given.timezone, given.anyway)
    return STOPPED


def _run(arguments: argparse.Namespace) -> int:
    apply_environment(arguments.workspace)
    from flows.build import build  # Prefect reads the environment when it is imported

    silence_dvc()
    try:
        state = build(arguments.workspace, arguments.targets, arguments.workers, return_state=True)
    except KeyboardInterrupt:
        return STOPPED
    if state.is_cancelled():
        print("Stopped. `palimpsest ledger` shows what was charged; run again to go on from here.")
        return STOPPED
    print(f"{state.name}: {state.message}")
    return 0 if state.is_completed() else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m flows", description=main.__doc__)
    parser.add_argument("workspace", type=Path, help="the folder with dvc.yaml")
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; all by default")
    parser.add_argument(
        "--workers", type=int, help="stages that may run at once; by default two, or one for every four CPU cores"
    )
    parser.add_argument("--serve", action="store_true", help="wait for runs by a schedule or from the interface")
    parser.add_argument("--cron", help="with --serve: minute hour day month weekday")
    parser.add_argument("--timezone", help="of --cron; this machine's by default")
    parser.add_argument("--anyway", action="store_true", help="with --serve: charge also where noise would decide")
    return parser


if __name__ == "__main__":
    sys.exit(main())
