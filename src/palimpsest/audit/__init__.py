"""Audits and measurements: pure functions of rows and scores. Stages run them, `report/sections` shows them.

* `anonymity`: evidence on the three criteria of the European data-protection authorities: singling out, linkability,
  inference
* `beside`: shows each synthetic row beside its nearest private row, to readers who may see both
* `facts`: a measure for the demo world: population facts should carry over, individual facts must not
* `fidelity`: the similarity of the synthetic and the private texts as sets: embeddings, words, lengths, diversity
* `fields`: fields beside texts: distances of their tables from real rows', and what a model of both learns from them
* `finetune`: evaluators that train a transformer on rows: a classifier, or a language model that reads real texts
* `groups`: groups of rows defined by public patterns, the accuracy of classifiers on them, and whether texts fit their
  labels
* `inconclusive`: the file that an audit of private rows writes in place of a result where it has none, with the
  reason
* `measures`: distances between two sets of texts, by their embeddings, words or lengths
* `membership`: membership inference with its control, and the lower bound on epsilon that one run allows
* `memorisation`: counts parts of single private records that the synthetic texts repeat: near-duplicates, personal
  data, secrets
* `next_token_settings`: settings of the next-token evaluation
* `ngrams`: word n-gram overlap of the synthetic texts with members, holdout and public text, and its excess
* `personal`: finds personal data in texts, by kind: values that reach, charge, number or name one person
* `reconstruction`: scores a decoder's reconstruction of texts from public embeddings: no private row is read
* `runs`: the longest runs that two corpora share, in a time that grows with their words and hardly with the runs'
  length
* `statistics`: the audit's statistics: pure functions of counts and scores, each with its source
* `structure`: checks whether synthetic JSON records parse and conform to their public schema
* `text_membership`: membership inference from only the released rows: no model is queried, so every method is
  attacked in the same way
* `units`: the units that coins are flipped for, and the near copies planted to show that an attack can find any
* `utility`: usefulness: train on synthetic rows, test on real ones; and a classifier trained with DP-SGD, without any
  text
"""
