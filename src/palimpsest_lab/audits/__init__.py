"""The lab's measurements: pure functions, separate from the page that shows them.

* `clipping`: how far clipping moves the average of private contexts: its L1 distortion in two ways
* `familiarity`: tests whether a public language model may have read the test rows before anybody here did
* `incontext`: in-context evaluation: how well a judge, a language model, answers real items behind demonstrations
  from the rows; and the interface of a judge
* `incontext_endpoint`: a judge at an OpenAI-compatible endpoint, by the log-probabilities of its answer's first token
* `incontext_model`: a judge on this machine: a causal language model's answers behind a prompt, chosen among labels,
  or written
* `incontext_settings`: settings of the in-context evaluation
* `prompt_membership`: membership inference through the prompts of an in-context learner
* `ratings`: ratings of rows by people: a blinded sheet of rows, and the results of filled sheets
* `rounds`: each round of evolution: its distance from the private rows, the spread of its votes, its parents
* `separation`: separation: how well a model's hidden states tell the labels apart, and plane drawings of them
* `shadow`: attacks that compare a model's losses with those of models that never saw the records: offline LiRA and
  RMIA
"""
