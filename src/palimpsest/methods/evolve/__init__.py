"""Private evolution: texts by authors that never see a private row, chosen round by round by noisy votes.

* `author`: the interface of candidate writers: RANDOM_API and VARIATION_API of private evolution
* `authors`: settings of authors: who writes the candidates of private evolution
* `base_lm`: an author without instructions: a public language model that continues beginnings and fills gaps
* `instructed`: the author that talks to a model which follows instructions: on this machine, or behind an endpoint
* `prompting`: requests of an instruction-following author, and texts from its answers
"""
