"""Public models: language models, encoders, tokenizers, and their use. Nothing here sees a ledger.

* `activations`: reads or moves a causal model's hidden states after one of its blocks
* `attention`: features of causal models beyond plain attention: sliding windows, soft caps, mixtures of experts
* `descent`: ordinary training on public text, a step at a time
* `encoder`: texts to unit vectors
* `grammar`: the tokens with which a record that is a JSON object can go on, so that what is drawn parses and conforms
* `lm`: causal language models: training a small one on public text, and loading any
* `logits`: computes functions of a causal model's logits, a part of the logits at a time
* `products`: products of float32 matrices by oneDNN, for models that are only read
* `prompts`: prompts as data: a template with slots becomes token ids around one text, or before one
* `settings`: settings of the models that public text makes: the small language model, its prompts, its pairs
* `sources`: resolves a model's source to a folder, and reads it as data: no code of it runs and no pickle is opened
* `tokens`: a tokenizer for public text, and the special tokens of any tokenizer
* `usable`: finds what is wrong with a model's folder by its files alone, so that `init` and a run say it at once
* `vectors`: a cache of text vectors: each is computed once and kept in a folder by the text's content, for all
  callers
* `vocabulary`: cuts a vocabulary to the tokens that public text uses: a smaller table, and rare words spelt in
  shorter tokens
* `word_map`: a public map of words to their neighbours, made only of public texts
* `words`: names for texts and labels, and the prompts made of them: templates for base models, which continue text
* `writing`: a public language model that continues many beginnings side by side, and scores how well a text fits what
  follows
"""
