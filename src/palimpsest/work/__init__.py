"""The work of the commands and of the interface for Python: make a workspace, price it, run it, and read what it made.

* `before`: before a run: checks that cost nothing, and a person's word for a release or a second charge
* `begin`: makes a workspace, from decisions and files
* `check`: whether the decisions of `init` can be, whether its files are what they say
* `console`: prints tables: drawn on a terminal, a line for each row where the output goes elsewhere
* `context`: an opened workspace: settings, ledger, the state of its graph, and results kept from earlier commands
* `decisions`: the params.yaml that `init` writes: what was decided, and no default
* `ledger`: the data set's entry in its ledger, the books, and receipts held against them
* `lengths`: how long public texts are: the limits that `init` sets by it, and what `plan` says is cut
* `look`: what a run left: the final table, pages, scores, comparisons and rows
* `plan`: what a run, or a grid of variants, would do and cost
* `repro`: `python -m palimpsest.work.repro [--single-item] [TARGET ...]`: does what `dvc repro` does, in our words
* `run`: brings a workspace up to date as its only run: at once, by a schedule, or on a team's server
"""
