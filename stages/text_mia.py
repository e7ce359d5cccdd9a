"""Membership inference from the released rows of one variant alone, whatever method wrote them."""

import secrets

from palimpsest.audit.membership import audit_membership, bag_of_words_control
from palimpsest.audit.text_membership import (
    Phantom,
    TextMembershipAudit,
    embedding_attack,
    phantom_test,
    text_attacks,
)
from palimpsest.audit.units import Guessed, Released, Scores
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.privacy.receipt import read_receipt
from palimpsest.records.write import read_split
from palimpsest.workspace import METRICS, PRIVATE, RECEIPTS
from stages.audited import written
from stages.common import start
from stages.encode_public import public_vectors
from stages.encoding import encoders
from stages.public import public_texts

NGRAM = 3  # longest n-gram of the n-gram model
RARE = (1, 2, 3, 5)  # n of the n-grams that a single private record has
_AT_ONCE = 64  # no guarantee rests on these vectors


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> text_membership.json of the variant."""
    params = load()
    splits = [read_split(PRIVATE / f"{part}.parquet") for part in ("train", "holdout")]
    guess = Guessed.of(*splits)
    released = released_rows(params, name, guess)
    control = bag_of_words_control(*guess.documents, seed=params.seed)
    others = [row.text for rows in splits for row in rows if not row.guess]
    phantom = phantom_test(released, others, RARE)
    receipt = read_receipt(RECEIPTS / f"{name}.json")
    audit = audit_membership(
        attacks(params, released, phantom),
        control,
        claim=receipt.claim,
        delta=params.delta,
        guess_share=params.audit.guesses,
        alpha=params.audit.alpha,
        seed=secrets.randbits(32),  # of ties: with a fixed one their order would hang on how many members there are
        guessed="members",  # of most records a release says nothing: that is no sign of a non-member
        units=guess.units,
    )
    write_json(METRICS / name / "text_membership.json", TextMembershipAudit(audit, phantom).to_json(name))


def released_rows(params: Params, name: str, guess: Guessed) -> Released:
    """The synthetic rows of a variant, the guess records of train and holdout, and the public texts."""
    return Released(written(params, name), guess.members, guess.others, public_texts(), guess.units)


def attacks(params: Params, released: Released, phantom: Phantom) -> dict[str, Scores]:
    """Every attack that the parameters allow; which ones they are does not hang on the rows."""
    found = text_attacks(released, order=NGRAM, labelled=bool(params.dataset.labels), seed=params.seed)
    encode = encoders(params, batch=_AT_ONCE)
    public = public_vectors(params, released.public, encode.others)
    records, synthetic = encode.rows(released.private), encode.others(released.texts)
    embedded = embedding_attack(released, records, synthetic, public, params.seed)
    return found | {"nearest_embeddings": embedded, "rare": released.scores(phantom.found)}


if __name__ == "__main__":
    start(run)
