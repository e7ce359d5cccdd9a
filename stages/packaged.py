"""Runs a stage that a package brings, warm as ours: `python -P -m stages.packaged MODULE [ARGUMENT ...]`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
