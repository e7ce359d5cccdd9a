"""A release: what may leave, checked, signed, and checked again where it arrives.

* `allowed`: selects the parts of a document that may leave: the fields named by a form that is written here, and
  nothing else
* `bundle`: writes the folder of a release beside its place, signs it, and puts it there whole
* `card`: the data-set card: README.md as repositories of data sets read it, with its numbers in the front matter
* `check`: checks a release on any machine, without its workspace, its ledger or a network
* `croissant`: writes the release as Croissant JSON-LD (MLCommons, format 1.0) with the fields of its RAI vocabulary
  1.0
* `envelope`: the signed list of a release's files: an in-toto Statement v1 in a DSSE v1 envelope, under an ed25519
  signature
* `extract`: the published extract of the ledger: every charge and cap of the asset, so that anybody can see and add
  up all
* `gates`: checks that must pass before rows leave
* `keys`: the key that signs releases: ed25519 in a file that only its owner may read, or held by a token or a key
  service
* `prov`: writes the origin of a release as PROV-JSON (W3C member submission 2013): the graph behind it and its lock
  file
* `word`: the release word of the data's owner, which every release needs, whatever the audits say
"""
