"""Evolution of embeddings: records vote for vectors, and a public decoder writes the last ones down.

* `result`: decodes the last populations into texts
* `steps`: steps between two votes, from noisy answers to the next slate of embeddings
"""
