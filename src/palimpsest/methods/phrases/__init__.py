"""Method `phrases`: texts about phrases that many private rows have.

* `voice`: the public language model of `phrases`: it writes after prompts that show a label and some phrases
"""
