"""Membership inference through prompts: a judge's answers behind one row of a variant, whatever method wrote it."""

from palimpsest.errors import ParamsError
from palimpsest.params.schema import Params
from palimpsest_lab.audits.incontext_model import Chooser
from palimpsest_lab.audits.prompt_membership import ATTACK, PromptMembershipAudit, ask
from palimpsest_lab.settings import audit_of
from palimpsest_lab.stages.incontext_eval import judge_of, settings_of
from stages.audited import conclude_on_error, metric_of_subject, save, written
from stages.common import start
from stages.membership import Target


@conclude_on_error(metric_of_subject("prompt_membership"))
def run(name: str) -> None:
    """The judge, synthetic rows, members and non-members -> prompt_membership.json of the variant."""
    target = Target.of(name)
    params, settings = target.params, audit_of(target.params).prompts
    judge = chooser_of(params, name)
    found = ask(
        judge.own_probabilities,
        written(params, name),
        target.guess,
        draws=settings.draws,
        shown=settings.shown,
        seed=params.seed,
    )
    audit = PromptMembershipAudit(target.judge_claim({ATTACK: found.scores}), found.density, found.shown)
    save(name, "prompt_membership", audit.to_json(name))


def chooser_of(params: Params, name: str) -> Chooser:
    """Return the judge that params.yaml names, which must give the probability of every label.

    Raises:
        ParamsError: it does not, or one demonstration and an item do not fit its context.
    """
    judge = judge_of(params, settings_of(params), name)
    if not isinstance(judge, Chooser):
        raise ParamsError(
            "The attack on prompts asks a judge on this machine for the probability of each public label.",
            "Take the variant out of runs.prompt_mia, or give models.judge kind: local.",
        )
    if judge.needs(1) > judge.context:
        raise ParamsError(
            f"One demonstration and an item need {judge.needs(1)} positions; the judge has {judge.context}.",
            "Lower demonstration_tokens or item_tokens in utility.in_context, or name another judge.",
        )
    return judge


if __name__ == "__main__":
    start(run)
