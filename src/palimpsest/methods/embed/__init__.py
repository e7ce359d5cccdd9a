"""Evolution of embeddings: records vote for vectors, and a public decoder writes the last ones down.

* `steps`: steps between two votes, from noisy answers to the next slate of embeddings
"""
