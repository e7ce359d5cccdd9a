"""`make demo-full`: the demo at its full size, in the folder full/, as docs/results/demo.md measured it."""

from pathlib import Path

from palimpsest.cli.begin import run_demo
from tools.world.pack import WORLDS, pack

if __name__ == "__main__":
    pack("full", WORLDS["full"])
    raise SystemExit(run_demo(Path("full"), Path("params.full.yaml")))
