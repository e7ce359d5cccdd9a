"""Which public models the stages that run need: a model that nothing reads is neither made nor fetched."""

from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.method import Family
from palimpsest.methods.shared.tools import Reads
from palimpsest.params.extension import brought
from palimpsest.params.schema import Params
from palimpsest.records.vouched import EMBEDDED

# Keys of `run` that name things made from the public language model, or asked of it.
_OF_THE_BASE = ("teach_similar", "decoder_pretrain")


def reads_base(params: Params) -> bool:
    """Whether anything that runs reads the public language model."""
    begins = any(params.authors[author].kind == "base" for author in params.run.zero_shot.values())
    asked = any(keys.reads_base(params) for keys in brought())
    if begins or asked or any(getattr(params.run, key) for key in _OF_THE_BASE):
        return True
    trained = (known for known in METHODS if known.family is Family.TRAINS and getattr(params.run, known.stage))
    written = (read_by(params, name) for name in params.run.evaluate if name not in params.run.dp_lm)
    return any(Reads.BASE in reads for reads in (*(known.reads for known in trained), *written))


def reads_named(params: Params) -> bool:
    """Whether the public language model is read and is a named one from elsewhere, whose training data are unknown."""
    return params.models.lm != EMBEDDED and reads_base(params)


def read_by(params: Params, variant: str) -> frozenset[Reads]:
    """Return what a variant with a charge of its own reads: what its method reads, less what its author spares it."""
    known = method(params.variants[variant].method)
    if Reads.AUTHOR not in known.reads:
        return known.reads
    return known.reads_with(params.authors[getattr(params.run, known.stage)[variant]])
