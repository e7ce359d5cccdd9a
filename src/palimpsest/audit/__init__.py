"""Audits and measurements: pure functions of rows and scores. Stages run them, `report/sections` shows them.

* `anonymity`: evidence on the three criteria of the European data-protection authorities: singling out, linkability,
  inference
* `beside`: shows each synthetic row beside its nearest private row, to readers who may see both
* `classifier`: scores a classifier that was itself trained with DP-SGD on real test rows, without synthetic text in
  between
* `facts`: a measure for the demo world: population facts should carry over, individual facts must not
* `fields`: fields beside texts: distances of their tables from real rows', and what a model of both learns from them
* `fidelity`: the similarity of the synthetic and the private texts as sets: embeddings, words, lengths, diversity
* `finetune`: the fine-tuned evaluator: a transformer classifier trained on synthetic rows, tested on real ones
* `groups`: groups of rows defined by public patterns: their share of the written rows, and the accuracy of
  classifiers on them
* `inconclusive`: the file that an audit of private rows writes in place of a result where it has none, with the
  reason
* `label_fit`: checks whether texts fit the labels that they were written for, by a classifier that learned from real
  rows
* `measures`: distances between two sets of texts, by their embeddings, words or lengths
* `membership`: membership inference with its control, and the lower bound on epsilon that one run allows
* `memorisation`: counts parts of single private records that the synthetic texts repeat: near-duplicates, personal
  data, secrets
* `next_token`: next-token evaluation: a small language model is trained further on rows, then reads real texts
* `next_token_settings`: settings of the next-token evaluation
* `ngrams`: word n-gram overlap of the synthetic texts with members, holdout and public text, and its excess
* `personal`: finds personal data in texts, by kind: values that reach, charge, number or name one person
* `planted`: plants near copies of private records, which an attack must find before its silence says anything
* `reconstruction`: scores a decoder's reconstruction of texts from public embeddings: no private row is read
* `rounds`: measures each round of evolution: its distance from the private rows, the spread of its votes, its number
  of parents
* `runs`: the longest runs that two corpora share, in a time that grows with their words and hardly with the runs'
  length
* `statistics`: the audit's statistics: pure functions of counts and scores, each with its source
* `structure`: checks whether synthetic JSON records parse and conform to their public schema
* `text_membership`: membership inference from only the released rows: no model is queried, so every method is
  attacked in the same way
* `units`: the units of the audited records: coins are flipped for units of privacy, so attacks are scored and counted
  by unit
* `utility`: utility: train on synthetic rows, test on real ones
"""
