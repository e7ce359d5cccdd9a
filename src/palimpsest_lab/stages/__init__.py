"""The lab's stages, one module each.

* `clipping_audit`: measures how far clipping the public language model's logits moves the average of private contexts
* `eda_audit`: measures how far each round's embeddings are from the private rows, and how exact votes spread
* `embedding_audit`: measures how well a language model's hidden states separate the labels, and how well it predicts
  the test rows
* `evolution_audit`: measures how far each round's texts are from the private rows
* `facts_audit`: looks for the invented world's facts in the synthetic rows
* `familiarity_audit`: measures whether the public language model, as it came, may have read the test rows before
* `incontext_eval`: lets a judge, a language model, answer real test rows behind demonstrations from one row of the
  results
* `prompt_mia`: membership inference through prompts: a judge's answers behind one row of a variant, whatever method
  wrote it
* `ratings`: writes a blinded sheet for people who judge rows, and reads filled ones; a program of the private zone,
  no stage
* `shadow_mia`: membership inference with shadow models against the model of one variant: dearer, and only run when
  named
"""
