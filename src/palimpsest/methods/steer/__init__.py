"""Method `steer`: noisy means of hidden states move a public language model.

* `voice`: the public language model of `steer`: it writes after a label's prompt, with moved states or not, and reads
  texts
"""
