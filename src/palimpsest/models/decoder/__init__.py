"""From a sentence embedding back to a text: a small language model, trained once on public text.

* `correcting`: training of a corrector: from a decoder's text and the error of its embedding to the sentence that was
  meant
* `decoding`: from embeddings to texts: several are written for each, and the one whose own embedding is nearest is
  kept
* `measure`: measures how well a decoder reconstructs public sentences from their embeddings
* `network`: a causal language model that reads a sentence embedding while it writes
* `training`: training of a decoder on public sentences and their embeddings, and the folder that it is kept in
"""
