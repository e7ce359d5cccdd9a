"""The pages: the internal audit page, the public card, the privacy statement, and the sample browser.

* `card`: the public card of a release: one HTML file made of what may be published, and of nothing else
* `claims`: the claims of the audit page: an id, a sentence, how far it holds, and the evidence
* `drawing`: shared parts of all charts: colours, scales, and tooltips
* `end_to_end`: states which methods' code was examined by the end-to-end audits that come with palimpsest
* `formats`: formats numbers for readers
* `page`: the internal audit page: one HTML file that needs nothing else, for the private zone
* `results`: results of the stages: one type for each kind of metric file, read by the type that wrote it
* `row`: the final table: one row per variant
* `samples`: the sample browser: one HTML file of the private zone in which a person looks through rows
* `statement`: the privacy statement: the promise, to whom it is made, its assumptions, and what is not covered
* `summary`: builds the final table from results, receipts and ledger, and sums up each variant in two sentences
* `tradeoff`: bounds on the best possible attack under a proven trade-off curve, rounded against us
* `unit`: words for the unit of privacy: one record, or one person with all of their rows
"""
