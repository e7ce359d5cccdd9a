"""The lab's sections of the audit page.

* `clipping`: how far clipping moves the average of private contexts
* `familiarity`: shows whether the public language model may have read the test rows before
* `incontext`: answers of a judge, a language model, behind demonstrations from each row of the results
* `prompts`: what a judge's answers behind one row give away: the densities of members and of others, and the control
* `rounds`: evolution round by round: how near the texts are, how votes spread, how many parents are left
* `separation`: how well each language model's hidden states separate the labels, and drawings of these states
* `shadow`: membership attacks on a model beside shadow models
"""
