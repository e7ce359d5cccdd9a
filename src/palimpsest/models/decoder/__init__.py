"""From a sentence embedding back to a text: a small language model, trained once on public text."""
