"""The command line: arguments, questions, tables and exit statuses. `palimpsest.work` does what the commands ask.

* `begin`: `init`, `synth` and `demo`, which make a workspace, and the questions that they ask on a terminal
* `command`: what the commands share: how they are listed, how one ends, the options of several, their examples
* `ledger`: `register`, and `ledger` with its own commands
* `look`: `plan`, `status`, `report`, `sample`, `samples` and `compare`, which change nothing
* `main`: the command line, of these groups
* `release`: `verify` and `keys`
* `run`: `run`, `serve`, `deploy` and `sweep`
* `settings`: `params` and `render`
"""
