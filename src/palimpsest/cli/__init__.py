"""The command line: each command calls a plain function of a module here.

* `command`: a command of the command line: options that several share, and how one ends
* `console`: prints the tables of commands: drawn on a terminal, a line for each row where the output goes elsewhere
* `context`: the context of a command: its workspace and ledger, rendered files, and results kept from earlier ones
* `decisions`: the params.yaml that `palimpsest init` writes: the options that it was given, and no default
* `demo`: `palimpsest demo`: the invented data set, from an empty folder to a signed release
* `graph`: the state of the graph: read at once for `plan` and `status`, and as DVC sees it for runs
* `init`: `palimpsest init`: reads the first row of each of a user's files, or checks them whole, and makes a
  workspace
* `ledger`: `palimpsest ledger`: the books; with `export`, `import` and `merge-check` a whole ledger as a file
* `lengths`: how long public texts are: the limits that `init` sets by it, and what `plan` says is cut
* `look`: `palimpsest report`, `samples` and `compare`: the final table, the pages, and variants or workspaces side by
  side
* `main`: the command line
* `options`: the decisions of `palimpsest init`: given as options and checked, or asked on a terminal one at a time
* `plan`: `palimpsest plan`: the stages that would run, the price list, and how long it may take, before anything is
  bought
* `repro`: `python -m palimpsest.cli.repro [--single-item] [TARGET ...]`: does what `dvc repro` does, in our words
* `run`: `palimpsest run`: free checks, questions to a person, then DVC or the flow, as the workspace's only run
* `sample`: `palimpsest sample`: rows of a synthetic variant, read where the run left them
* `serve`: `palimpsest serve` and `deploy`: runs by a schedule, which can ask nobody, here or on a team's Prefect
  server
* `sweep`: `palimpsest sweep`: a variant for each point of a grid, priced as a whole, then run by the ordinary graph
* `synth`: `palimpsest synth`: from a file to rows, with the steps of `init`, `plan`, `run` and `report`
* `twins`: `palimpsest twins`: audit one method end to end
* `verify`: `palimpsest verify`: checks that the receipts say what the ledger says, and that the accountants agree
* `verify_release`: `palimpsest keys new`, the key that signs releases, and `palimpsest verify FOLDER`, which checks
  one anywhere
"""
