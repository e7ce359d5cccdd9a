"""The programs of the graph's nodes, each started as `python -P -m stages.NAME`, and their shared modules."""

import os
import sys

# True only while Python looks for the module that it will run: nothing is imported yet.
if os.environ.get("PALIMPSEST_WARM") and sys.argv[:1] == ["-m"] and sys.orig_argv[1:3] == ["-P", "-m"]:
    from stages.warm import hand_over

    hand_over()
