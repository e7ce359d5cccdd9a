"""Tier 4 of the tests of the privacy code: each method end to end on invented rows, and twins with a planted fault.

`canaries` and `models` invent the inputs of a run, `scenes` define the stages that run on them and the attack on the
release, `faults` plants the faults, and `result` judges. `cli/twins.py` runs it all in temporary workspaces. `shipped`
has the results that come with this version.
"""
