"""DP-SGD: batches, exact per-example clipping, noise, and the checks before a private row is read.

* `batches`: micro-batches of fixed shapes, filled with whole units of privacy
* `bookkeeping`: exact per-example clipping with one forward and one backward pass
* `check`: checks on public examples, before any private one, that an engine treats a model and a loss exactly
* `checkpoint`: checkpoints of a training run, from which another attempt may go on: post-processing of noisy sums,
  and nothing else
* `dpsgd`: DP-SGD: Poisson batches, per-example clipping, noise once per logical batch, Adam, in one process or several
* `engine`: the types that DP-SGD and the engine that clips each example's gradient exchange
* `ghost`: per-example gradients in factored form: their norms and weighted sums without building them
* `integers`: exact sums of clipped gradients in whole numbers: no rounding is left in a sum, in whatever order it is
  added up
* `losses`: per-example losses: a batch's mean would couple examples before clipping, and the sensitivity argument
  would fail
* `optimiser`: the optimiser that moves weights by privatised gradients: AdamW, all of it post-processing
* `plan`: the public numbers of a private training run, its event, and how far rounding may move a sum of gradients
* `scaling`: layers that only scale: output = weight * n(x) + c(x), coordinate by coordinate, as every RMSNorm does
* `team`: several processes that train one model: each sums its share of a batch, the first adds the noise, all step
  alike
* `whole`: whole numbers in digits: records rounded to them, their exact products, and the exact sums of these
"""
