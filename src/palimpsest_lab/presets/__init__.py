"""The settings of the four papers, each value with its place in the paper: `palimpsest init --preset paper-000`.

* `paper_000`: paper 000: DP fine-tuning of a conditional language model, filtered, steered, and with a second loss
* `paper_002`: paper 002: Aug-PE, private evolution of texts by a language model that is only asked
* `paper_003`: paper 003: private prediction, at several temperatures, with and without a sparse vector, beside few-
  shot texts
* `paper_004`: paper 004: embeddings that evolve by private votes, and the three baselines that it measures beside
  them
"""
