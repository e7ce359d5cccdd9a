"""The ledger: every look at a private data set, reserved before it and never forgotten.

* `books`: the whole ledger at one moment, as values, and the bodies that its entries are written with
* `chain`: the ledger's entries as a chain of hashes: each carries the hash of the one before
* `database`: the database of the ledger's tables: a SQLite file that only its owner may read, or a PostgreSQL server
* `exported`: a whole ledger as a file of JSON lines, and a comparison of two ledgers
* `ledger`: the ledger: every look at a private data set, reserved before it, written down as it begins, never
  forgotten
* `reader`: the strict reader of one asset's entries, which derives its charges
* `records`: the ledger's values and their hashes: assets, runs, charges, what is spent, and the word for a second
  charge
* `rules`: rules of what a run may reserve or use of an earlier attempt and of how charges move: pure functions of
  charges
* `store`: reading and writing the ledger: whole transactions, checked against what was noted of it elsewhere
* `summary`: a summary of one asset's books, for tables, pages and the statement
* `total`: the epsilon that is proved of all releases of a data set together, and where its filter stands
* `witness`: notes of the ledger that lie outside it, so that an old copy put back is noticed: the heads of its chain
"""
