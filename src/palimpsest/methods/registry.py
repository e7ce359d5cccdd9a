"""All methods, each declared in its own folder. A new one is a folder and a line here."""

from palimpsest.methods.baselines.custext.declaration import CUSTEXT
from palimpsest.methods.baselines.fewshot.declaration import FEWSHOT
from palimpsest.methods.baselines.sentdp.declaration import SENTDP
from palimpsest.methods.choose.declaration import CHOOSE
from palimpsest.methods.dp_lm.declaration import DP_LM
from palimpsest.methods.dp_lm.judge_declaration import DISCRIMINATOR
from palimpsest.methods.embed.declaration import EMBED
from palimpsest.methods.evolve.declaration import EVOLVE
from palimpsest.methods.phrases.declaration import PHRASES
from palimpsest.methods.predict.declaration import PREDICT
from palimpsest.methods.restate.declaration import RESTATE
from palimpsest.methods.select.declaration import SELECT
from palimpsest.methods.shared.method import Family, Method
from palimpsest.methods.steer.declaration import STEER
from palimpsest.methods.vote_select.declaration import VOTE_SELECT

# Each stands behind those that it may build on.
METHODS: tuple[Method, ...] = (
    DP_LM,
    DISCRIMINATOR,
    PREDICT,
    FEWSHOT,
    PHRASES,
    SELECT,
    STEER,
    EVOLVE,
    EMBED,
    SENTDP,
    CUSTEXT,
    VOTE_SELECT,
    RESTATE,
    CHOOSE,
)
# Those whose rows are charged as such: a variant of the method is asked for by itself.
CHARGED = tuple(method for method in METHODS if method.family is not Family.TRAINS)


def method(name: str) -> Method:
    """The method of that name."""
    return next(known for known in METHODS if known.name == name)


def stages_that_spend() -> tuple[str, ...]:
    """Names of the stages that ask private rows something, as in dvc.yaml."""
    return tuple(dict.fromkeys(known.stage for known in METHODS))
