"""Method `dp_lm`: a conditional language model trained with DP-SGD, its discriminators, and ways to draw from it.

* `decoding`: writing texts side by side: the loop that all ways of choosing a token share, and its keys and values
* `discriminator`: a separate discriminator, trained with DP-SGD after the model: a head on fixed features, or a tuned
  copy of the model
* `guidance`: steering towards labels by the discriminator: by its gradients (PPLM), or by reweighting next tokens
  (FUDGE)
* `judge_declaration`: declaration of the discriminators of method dp_lm
* `likelihood`: losses of the multitask model, one value per record, and the scores of records that are made of them
* `model`: the conditional language model, a causal LM with a discriminator, and the folder that a fit leaves
* `sampling`: drawing synthetic rows from a fitted model: steered, the best of a few, filtered, until each label has
  its count
* `serialise`: rows as token sequences: `BOS label SEP text EOS`, and `BOS rand SEP text EOS` for the discriminator
"""
