"""Private prediction: tokens from many private contexts at once, by clipped and averaged logits.

* `cells`: the batch that a unit of privacy is in: a keyed hash of that unit only, so no unit moves another
* `contexts`: many contexts under way at once: each prompt is read once, then goes on token by token or back to its
  end
* `decoding`: writing from batches of private contexts, many batches at once, within what each batch may spend
* `mechanism`: one token from many private contexts: clipped logits, averaged, drawn from their softmax
* `prompts`: the contexts of private prediction: prompts with one private text, or with none
* `query`: the metered query of private prediction: text written from one wave of batches
* `sampling`: the cost of a token in few-shot generation: public numbers, and their event
"""
