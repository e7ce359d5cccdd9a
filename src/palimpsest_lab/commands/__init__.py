"""The work of the lab's commands, without their options.

* `dataset`: `palimpsest dataset`: the published files of a data set by its name, as the files that `palimpsest init`
  reads
* `reproduce`: `palimpsest reproduce`: a table or a figure of a paper by one command, run by the ordinary graph
* `reproduction`: the workspaces of `palimpsest reproduce`: one for each data set of a paper, with a variant for each
  cell
"""
