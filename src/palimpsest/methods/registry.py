"""All methods: those declared here, each in its own folder, and those that installed packages bring.

Declarations are loaded by name, so that a stage's code (`graph.closure`) is that of its own method and not of all.
"""

from collections.abc import Iterator
from importlib import import_module

from palimpsest import extensions
from palimpsest.errors import ParamsError
from palimpsest.methods.shared.method import Family, Method, Reads

_DECLARED = (
    ("dp_lm.declaration", "DP_LM"),
    ("dp_lm.judge_declaration", "DISCRIMINATOR"),
    ("predict.declaration", "PREDICT"),
    ("phrases.declaration", "PHRASES"),
    ("select.declaration", "SELECT"),
    ("steer.declaration", "STEER"),
    ("evolve.declaration", "EVOLVE"),
    ("embed.declaration", "EMBED"),
    ("vote_select.declaration", "VOTE_SELECT"),
    ("restate.declaration", "RESTATE"),
    ("tabulate.declaration", "TABULATE"),
    ("choose.declaration", "CHOOSE"),
)


def _load_declared() -> Iterator[Method]:
    for module, name in _DECLARED:
        yield getattr(import_module(f"palimpsest.methods.{module}"), name)
    yield from extensions.load_group(extensions.METHODS).values()


def _depth(known: Method) -> int:
    """A method comes after those that it may build on."""
    return 2 if Reads.SOURCES in known.reads else 1 if Reads.SOURCE in known.reads else 0


METHODS: tuple[Method, ...] = tuple(sorted(_load_declared(), key=_depth))
extensions.require_apart("a method", (known.name for known in METHODS))
# Those whose rows are charged as such: a variant of the method is asked for by itself.
CHARGED = tuple(method for method in METHODS if method.family is not Family.TRAINS)


def method(name: str) -> Method:
    """The method of that name.

    Raises:
        ParamsError: no installed package has it.
    """
    found = next((known for known in METHODS if known.name == name), None)
    if found is None:
        raise ParamsError(
            f"No installed package has a method {name!r}.",
            "Install the package that brings it; rows, receipts and the ledger are as they were.",
        )
    return found


def stages_that_spend() -> tuple[str, ...]:
    """Names of the stages that ask private rows something, as in dvc.yaml."""
    return tuple(dict.fromkeys(known.stage for known in METHODS))
