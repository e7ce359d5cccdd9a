"""Evolution of embeddings: records vote for vectors, and a public decoder writes the last ones down."""
