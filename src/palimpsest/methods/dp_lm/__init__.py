"""Method `dp_lm`: a conditional language model trained with DP-SGD, its discriminators, and ways to draw from it.

* `decoding`: writing texts side by side: the loop that all ways of choosing a token share, and its keys and values
* `discriminator`: a separate discriminator: a head on fixed features, trained with DP-SGD after the language model is
  fitted
* `fitting`: shared by the fits of `dp_lm`: a training's optimiser, and the records of its self-check
* `fudge`: steering without gradients: the likeliest next tokens, reweighted by how likely they make the wanted label
* `judge_declaration`: declaration of the discriminators of method dp_lm
* `likelihood`: scores of records by a model, serialised as in training, and label probabilities by its discriminator
* `losses`: per-example losses of the multitask model
* `model`: the conditional language model, a causal LM with a discriminator, and the folder that a fit leaves
* `pplm`: steering by gradients of the discriminator with respect to the past (PPLM)
* `sampling`: drawing synthetic rows from a fitted model: steered, the best of a few, filtered, until each label has
  its count
* `serialise`: rows as token sequences: `BOS label SEP text EOS`, and `BOS rand SEP text EOS` for the discriminator
* `tuned`: a discriminator that is a whole language model: a copy of the fitted one, tuned with DP-SGD to tell labels
  apart
"""
