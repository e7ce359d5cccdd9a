"""Audit every method end to end and write the results that come with the package.

    OMP_NUM_THREADS=1 python -m bench.twins

Whatever comes out is written: a claim that was refuted stops releases of that method wherever the version is installed.
Ends with status 1 where one was refuted, or a broken version was not caught.
"""

import sys

from palimpsest import extensions
from palimpsest.files import write_json
from palimpsest.report.twins import FILE
from palimpsest_lab.twins.audit import audit_twins
from palimpsest_lab.twins.result import SOUND
from palimpsest_lab.twins.scenes import GROUP, SCENES

SEED = 7  # as the command has it


def main() -> None:
    known = {**SCENES, **extensions.load_group(GROUP)}
    found = {method: audit_twins(scene(SEED), SEED) for method, scene in known.items()}
    write_json(FILE, {method: audit.to_json() for method, audit in found.items()})
    failed = [f"{method}: {audit.verdict}" for method, audit in found.items() if audit.verdict != SOUND]
    sys.exit("; ".join(failed) or 0)


if __name__ == "__main__":
    main()
