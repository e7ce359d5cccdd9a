"""A release: what may leave, checked, signed, and checked again where it arrives.

* `bundle`: writes the folder of a release whole: the fields of each document that may leave, and nothing else
* `card`: the data-set card: README.md for people, Croissant JSON-LD for machines
* `check`: checks a release on any machine, without its workspace, its ledger or a network
* `extract`: the published extract of the ledger: every charge and cap of the asset, so that anybody can see and add
  up all
* `gates`: checks that must pass before rows leave
* `keys`: the key that signs releases, and the signed list of a release's files
* `prov`: writes the origin of a release as PROV-JSON (W3C member submission 2013): the graph behind it and its lock
  file
* `word`: the release word of the data's owner, which every release needs, whatever the audits say
"""
