"""Records: reading files, the public schema, splits, and what texts hold.

* `conformity`: checks of the public JSON schema of records: whether it can be used, and which records conform to it
* `duplicates`: records that occur twice, or nearly: the membership audit may not guess about them
* `evolved`: the file of the embeddings that each round of `embed` voted for and selected, which its audit reads
* `faults`: the faults that one record of a file can have, and the policies for a record with a fault
* `fields`: fields beside a text: categories, numbers and dates, each read into one of a public list of cells
* `formats`: reading the wanted cells of a CSV, TSV, JSONL, JSON or Parquet file, row by row, plain or gzipped
* `keyed`: digests that depend on one record and a secret key, and on nothing else in the data set
* `personal`: detection of numbers and addresses that reach, charge or name one person, in texts of any script
* `phrases`: phrases: single words and pairs of neighbours that a text has, and how common they are in public texts
* `picked`: a few rows of many, for a reader
* `preprocess`: preprocessing of raw private rows to training, holdout and test rows, each unit's part drawn by a keyed
  hash of it
* `private`: rows of the private zone
* `read`: reading private (or public) rows from CSV, TSV, JSONL, JSON and Parquet, or finding every fault of a file
* `record`: the record that leaves a generator, and public rows: text with a label or none
* `schema`: the public facts about a private data set and its labels
* `segment`: segments texts of any script into words, the one way for filters, near-duplicates, n-grams, attacks and
  TF-IDF
* `sources`: copying a table from where it lies: an address that fsspec knows, a query of a database, a sheet of Excel
* `statements`: finding and rewriting statements: sentences with a value of each public attribute, such as a product
  and its trouble
* `structured`: records that are JSON objects: the canonical text of each, and which texts are JSON
* `texts`: records of several texts, or of the turns of a conversation: joined to one text, and split again
* `vouched`: public sources count as public on their owner's word; what a workspace holds or made of private rows
  never does
* `write`: writing and reading the Parquet splits, packed rows, and writing synthetic rows for their user
"""
