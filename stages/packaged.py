"""Runs a stage that a package brings, as `python -P -m stages.packaged MODULE [ARGUMENT ...]`: warm, as our own start."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
