"""Membership inference from only the released rows of one variant, whatever method wrote them."""

from palimpsest.audit.text_membership import Phantom, TextMembershipAudit, embedding_attack, phantom_test, text_attacks
from palimpsest.audit.units import Released, Scores, find_planted, plant
from palimpsest.params.schema import Params
from palimpsest.records.write import read_split
from palimpsest.workspace import PRIVATE
from stages.audited import conclude_on_error, metric_of_subject, save, written
from stages.common import start
from stages.encode_public import public_vectors
from stages.membership import Target
from stages.public import public_texts
from stages.tools import encoders

NGRAM = 3  # longest n-gram of the n-gram model
RARE = (1, 2, 3, 5)  # n of the n-grams that only one unit of train and holdout has


@conclude_on_error(metric_of_subject("text_membership"))
def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows -> text_membership.json of the variant."""
    target = Target.of(name)
    params, guess = target.params, target.guess
    released = Released(written(params, name), *guess.sides, public_texts(), guess.units)
    splits = (read_split(PRIVATE / f"{part}.parquet") for part in ("train", "holdout"))
    copies = plant(released, params.seed)
    planted = find_planted(attacks(params, copies, phantom_test(copies, [], RARE)))
    phantom = phantom_test(released, [row.text for rows in splits for row in rows if not row.guess], RARE)
    # A release says nothing of most records: that is no sign of a non-member.
    audit = target.judge_claim(attacks(params, released, phantom), planted, "members")
    save(name, "text_membership", TextMembershipAudit(audit, phantom).to_json(name))


def attacks(params: Params, released: Released, phantom: Phantom) -> dict[str, Scores]:
    """Return every attack that the parameters allow; the choice of attacks does not depend on the rows."""
    of_words = text_attacks(released, order=NGRAM, labelled=bool(params.dataset.labels), seed=params.seed)
    encode = encoders(params)
    public = public_vectors(params, released.public, encode.others)
    records, synthetic = encode.rows(released.private), encode.others(released.texts)
    embedded = embedding_attack(released, records, synthetic, public, params.seed)
    return of_words | {"nearest_embeddings": embedded, "rare": released.scores(phantom.found)}


if __name__ == "__main__":
    start(run)
