"""Tier 4 of the tests of the privacy code: each method end to end on invented rows, beside twins with a planted fault.

`canaries` and `models` invent what a run reads, `scenes` says which stages run on it and how the release is attacked,
`faults` plants the faults, and `result` judges. `cli/twins.py` runs it all in temporary workspaces. `shipped` has
the results that come with this version.
"""
