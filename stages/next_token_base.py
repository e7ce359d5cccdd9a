"""Trains, on public text only, the language model that later learns on rows and reads real texts."""

from palimpsest.models.lm import load_lm, pretrain_lm, save_lm
from palimpsest.params.load import load
from palimpsest.records.vouched import EMBEDDED
from palimpsest.workspace import NEXT_TOKEN_LM
from stages.common import start
from stages.public import heldout_texts, public_texts
from stages.vouching import resolve_vouched


def run() -> None:
    """data/public -> models/next_token."""
    params = load()
    if params.models.next_token != EMBEDDED:
        save_lm(*load_lm(resolve_vouched(params, "models.next_token")), NEXT_TOKEN_LM)
        return
    seed = params.seed + 1  # another start than that of the model that methods write with
    pretrain_lm(public_texts(), heldout_texts(), params.models.embedded_lm, seed, NEXT_TOKEN_LM)


if __name__ == "__main__":
    start(run)
