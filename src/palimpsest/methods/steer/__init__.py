"""Method `steer`: noisy means of hidden states move a public language model."""
