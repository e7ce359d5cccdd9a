"""Mechanisms, noise, accountants, and the door to private rows: what each guarantee rests on.

* `accounting`: from privacy events to epsilon, and from a target epsilon to noise
* `choice`: a charged choice among a few public functions: the one that gives most private units their own label
* `circle`: Gaussians from random bits, rounded to whole numbers without error: Box and Muller's transform (1958)
* `cuda_noise`: exact Gaussian noise on a CUDA device: one kernel draws it where the sums are, and nothing of their
  size is copied
* `depth`: approximate Tukey depth: how deep public texts lie in the cloud of a label's records, and noisy picks of
  the deepest
* `entropy`: where private randomness comes from: the operating system, never a seed
* `events`: privacy events: `dp_accounting`'s own, those it lacks, their JSON form, and picks by Gumbel noise
* `fourier`: a second accountant for the events that have a privacy loss: its own code, its own error bound
* `gaussian_share`: the share of a Gaussian budget that a charge takes: the least Gaussian that covers its event,
  beside a small delta
* `grid`: the grid that Gaussian noise lies on, and the room for it
* `limited_domain`: picks of the bins with the most votes, among a histogram's leading bins, with a bottom that ends
  the picks
* `losses`: privacy losses on a grid, composed so that no delta is too small: an upper bound with its rounding counted
* `means`: sums of embeddings per class, in one release: they show what private rows are about and how their classes
  differ
* `nearest`: exact nearest neighbours: the answer for one row depends on that row and on the candidates, and on
  nothing else
* `planned`: looks at private rows as a plan names them, the versions of their questions, and assumptions about the
  machine
* `queries`: count queries that any generator may ask; noise on counts and selection through OpenDP's exact samplers
* `query`: the protocol of a metered query, the register of those that may be asked, and what a stopped one leaves
* `receipt`: the receipt of a run: what it was charged and what that proves
* `rows`: the private row and its person
* `session`: one run of a private stage: reserve, open the view, and close the books whatever happens
* `shown`: display of epsilons and deltas, rounded to the side that promises no more than there is
* `tables`: noisy tables of fields beside a text, and noisy sums of the texts' embeddings for each value of a field
* `thresholded`: private vocabularies, keys that nobody listed: phrases of each label, values in statements and their
  combinations
* `view`: the door to private rows: a capability that answers registered, reserved, metered queries and nothing else
* `votes`: nearest-neighbour votes: private records vote for the candidates most like them, once or round after round
* `words`: words of private texts replaced one by one by public neighbours, which protects words but no record
"""
