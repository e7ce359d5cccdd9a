"""Parts that methods share: none of them knows a method.

* `base`: shared by all methods: a plan that costs nothing and foretells signals, a fit that spends, and rows that are
  free
* `filters`: the filters that settings name: free post-processing of written texts
* `means`: chooses texts by noisy class means: those that are like the rows of one label, and unlike those of the
  others
* `method`: the declaration of a method: everything that the rest of the project must know about it, and the inputs of
  its fit
* `postprocess`: filters drawn texts: a chain of named filters, each with a count of the texts it removed
* `predicted`: shared by methods that write from private contexts: the tokens that may be drawn, and the written rows
* `rounds`: shared by methods in rounds of votes: their noise, their queries, and selection by noisy counts
* `shares`: the number of rows of each label: from a noisy histogram of units, charged, or from a public prior, free
* `tables`: tables of the label and of fields: the question, the joint distribution that fits, and rows drawn of it
"""
