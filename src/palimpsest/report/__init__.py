"""The pages: the internal audit page, the public card, the privacy statement, and the sample browser.

* `card`: the public card of a release: one HTML file made of what may be published, and of nothing else
* `drawing`: shared parts of all charts: colours, scales, and tooltips
* `formats`: numbers for readers, and the words for the unit of privacy
* `page`: the internal audit page: one HTML file that needs nothing else, for the private zone; and its claims
* `results`: results of the stages, read by the type that wrote them, and the final table, one row per variant
* `samples`: the sample browser: one HTML file of the private zone in which a person looks through rows
* `statement`: the privacy statement: the promise, to whom it is made, its assumptions, what is not covered, and the
  audits of the code
* `summary`: builds the final table from results, receipts and ledger, and sums up each variant in two sentences
* `tradeoff`: bounds on the best possible attack under a proven trade-off curve, rounded against us
* `twins`: the results of end-to-end audits that come with this version: `make twins` measures and writes them
"""
