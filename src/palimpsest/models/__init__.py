"""Public models: language models, encoders, tokenizers, and their use. Nothing here sees a ledger.

* `activations`: reads or moves a causal model's hidden states after one of its blocks
* `attention`: features of causal models beyond plain attention, and functions of their logits, a part at a time
* `descent`: ordinary training on public text, a step at a time
* `encoder`: texts to unit vectors
* `grammar`: the tokens with which a record that is a JSON object can go on, so that what is drawn parses and conforms
* `lm`: causal language models: training a small one on public text, and loading any
* `products`: products of float32 matrices by oneDNN, for models that are only read
* `reader`: fields that are read from texts by the encoder: which public words are most like a text
* `settings`: settings of the models that public text makes, of embedding decoders, and the words that prompts are made
  of
* `sources`: resolves a model's source to a folder, finds what is wrong with it, and reads it as data: no code of it
  runs
* `tokens`: a tokenizer for public text, the special tokens of any tokenizer, and prompts as token ids around a text
* `vectors`: a cache of text vectors: each is computed once and kept in a folder by the text's content, for all
  callers
* `vocabulary`: cuts a vocabulary to the tokens that public text uses: a smaller table, and rare words spelt in
  shorter tokens
* `word_map`: a public map of words to their neighbours, made only of public texts
* `writing`: a public language model that continues many beginnings side by side, and scores how well a text fits what
  follows
"""
