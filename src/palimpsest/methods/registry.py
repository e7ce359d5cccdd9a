"""All methods, each declared in its own folder. A new one is a folder and a line here.

Declarations are loaded by name, so that a stage's code (`graph.closure`) is that of its own method and not of all.
"""

from importlib import import_module

from palimpsest.methods.shared.method import Family, Method

# Each stands behind those that it may build on.
_DECLARED = (
    ("dp_lm.declaration", "DP_LM"),
    ("dp_lm.judge_declaration", "DISCRIMINATOR"),
    ("predict.declaration", "PREDICT"),
    ("baselines.fewshot.declaration", "FEWSHOT"),
    ("phrases.declaration", "PHRASES"),
    ("select.declaration", "SELECT"),
    ("steer.declaration", "STEER"),
    ("evolve.declaration", "EVOLVE"),
    ("embed.declaration", "EMBED"),
    ("baselines.sentdp.declaration", "SENTDP"),
    ("baselines.custext.declaration", "CUSTEXT"),
    ("vote_select.declaration", "VOTE_SELECT"),
    ("restate.declaration", "RESTATE"),
    ("choose.declaration", "CHOOSE"),
)
METHODS: tuple[Method, ...] = tuple(
    getattr(import_module(f"palimpsest.methods.{module}"), name) for module, name in _DECLARED
)
# Those whose rows are charged as such: a variant of the method is asked for by itself.
CHARGED = tuple(method for method in METHODS if method.family is not Family.TRAINS)


def method(name: str) -> Method:
    """The method of that name."""
    return next(known for known in METHODS if known.name == name)


def stages_that_spend() -> tuple[str, ...]:
    """Names of the stages that ask private rows something, as in dvc.yaml."""
    return tuple(dict.fromkeys(known.stage for known in METHODS))
