"""Counts what the synthetic rows repeat of single private records, beside what they share with records no one read."""

from palimpsest.audit.memorisation import LikenessRules, Secrets, memorisation
from palimpsest.audit.units import Released
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.duplicates import SHINGLE
from palimpsest.records.world.facts import draw_decoys, load_facts
from palimpsest.workspace import FACTS
from stages.audited import conclude_on_error, load_guessed, metric_of_subject, save, written
from stages.common import start
from stages.public import public_texts

CLOSENESS = 0.8  # of a near match: one character in five may be wrong
_DECOYS = 200  # more than there are secrets: they cost no private row


@conclude_on_error(metric_of_subject("memorisation"))
def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows, the world's secrets -> memorisation.json of the variant."""
    params, guess = load(), load_guessed()
    released = Released(written(params, name), *guess.sides, public_texts(), guess.units)
    settings = LikenessRules(params.audit.similarity, SHINGLE, CLOSENESS)
    save(name, "memorisation", memorisation(released, planted_secrets(params), settings, params.seed).to_json(name))


def planted_secrets(params: Params) -> Secrets | None:
    """Return the canaries of the invented world, and as many as needed never planted; None for another data set."""
    if params.world is None:
        return None
    planted = tuple(canary.value for canary in load_facts(FACTS).canaries)
    decoys = draw_decoys(_DECOYS, params.seed) - set(planted)
    return Secrets(planted, tuple(sorted(decoys))) if planted else None


if __name__ == "__main__":
    start(run)
