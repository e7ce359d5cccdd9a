"""Data sets of the papers by their names: how their published files are read. Nothing here fetches anything.

* `declaration`: declarations of data sets: the publisher, the form of its files, and the facts that a workspace for
  it needs
* `known`: the known data sets, each declared once, in the order of the papers that measure on them
* `prepare`: turns the files of a folder into private and test records, and finds which of them recur in a public text
* `readers`: readers of published files: the paths of one part in, its records out, in the files' order
"""
