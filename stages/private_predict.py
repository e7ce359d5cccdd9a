"""Write the rows of one variant from private contexts, with a language model that never learns from them: it spends."""

import math
from collections import Counter
from pathlib import Path

from palimpsest.errors import ParamsError
from palimpsest.methods.baselines.fewshot.fit import FewShot
from palimpsest.methods.predict.fit import Predict, Predicted, no_encoder
from palimpsest.methods.select.fit import Candidates, choose
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.postprocess import Candidate
from palimpsest.methods.shared.shares import divided
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import FewShotVariant, Params, PredictVariant
from palimpsest.privacy.assumptions import LOGIT_ROUNDING
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge
from palimpsest.privacy.means import Encode
from palimpsest.records.keyed import digest
from palimpsest.records.vouched import fingerprint_of
from palimpsest.records.write import write_synthetic
from palimpsest.workspace import CHECKPOINTS, MODELS, SYNTHETIC
from stages.common import start
from stages.encoding import Encoders, encoders
from stages.filters import chain
from stages.spending import charged, identify, record

STAGE = "private_predict"
KEPT = CHECKPOINTS / "predict"


def run(name: str, _model: str) -> None:
    """data/private/train.parquet, a public model -> data/synthetic/<variant>.*, its receipt, generation.json."""
    params = load()
    ledger = Ledger.open(ledger_url(params))
    asset, encode = ledger.asset(params.dataset.asset), encoder(params, name)
    generator, plan = planned(params, name, asset, encode)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    behind = fingerprint_of(language_model(params, name)), *([encode.fingerprint] if encode else [])
    with charged(params, ledger, identify(params, STAGE, name, plan, *behind), plan, continues) as session:
        written = generator.fit(session.view, plan)
        counts = keep(params, name, written, encode)
    assumed = () if generator.settings.rounding is None else (LOGIT_ROUNDING,)
    record(params, ledger, session, plan, counts, assumptions=assumed)
    for charge in ledger.charges(asset.name):  # those of earlier plans of the variant, too
        if (charge.stage, charge.variant) == (STAGE, name):
            (KEPT / f"{charge.id}.json").unlink(missing_ok=True)


def encoder(params: Params, name: str) -> Encoders | None:
    """The public sentence encoder, where the variant asks for class means."""
    variant = writing(params, name)
    if not isinstance(variant, PredictVariant) or variant.predict.means is None:
        return None
    return encoders(params, variant.predict.means.batch)


def planned(
    params: Params, name: str, asset: Asset | None = None, encode: Encoders | None = None
) -> tuple[Predict | FewShot, Plan]:
    """The generator of a variant and its plan; reads no row. Only a fit needs the asset, whose key spreads the rows."""
    schema, variant = params.schema_of_data, writing(params, name)
    budget = Budget(variant.epsilon, params.delta)
    key = digest(asset.key, "predict", name) if asset else b""
    reader: tuple[Encode, int]
    made: Predict | FewShot
    if isinstance(variant, PredictVariant):
        reader = (encode.rows, encode.dimension) if encode else (no_encoder, 1)
        made = Predict(variant.predict, schema, language_model(params, name), key, KEPT, reader)
    else:
        made = FewShot(variant.fewshot, schema, language_model(params, name), KEPT)
    return made, made.plan(schema, budget)


def writing(params: Params, name: str) -> PredictVariant | FewShotVariant:
    """A variant of method predict or fewshot."""
    variant = params.variants[name]
    assert isinstance(variant, PredictVariant | FewShotVariant)  # the schema lets no other run here
    return variant


def language_model(params: Params, name: str) -> Path:
    """The folder of the public model that reads the variant's prompts."""
    return MODELS / params.run.private_predict[name]


def continues(charge: Charge, *_: object) -> bool:
    """Whether writing that began and was stopped goes on under its charge: always, with what the charge has left."""
    return charge.steps is not None and not charge.noise_fixed


def keep(
    params: Params, name: str, written: Predicted, encode: Encoders | None
) -> dict[str, float | int | dict[str, int]]:
    """Filter what was written, choose by the class means where there are any, and save it; counts for generation.json.

    All of it is post-processing of the mechanisms' outputs.
    """
    variant = writing(params, name)
    settings = variant.predict if isinstance(variant, PredictVariant) else variant.fewshot
    joint = settings.prompt.joint if params.dataset.task == "span" else None
    rows = list(written.records(joint))
    removing = chain(settings.filters, settings.max_tokens, settings.micro_batch)
    kept = [found.record for found in removing.apply([Candidate(row, math.nan) for row in rows])]
    if isinstance(variant, PredictVariant) and variant.predict.means and written.sums and encode:
        texts = [row.text for row in kept]
        shares = {label: count / len(kept) for label, count in Counter(row.label or "" for row in kept).items()}
        counts = divided(int(variant.predict.means.keep * len(kept)), shares)
        kept = choose(Candidates(texts, encode.others(texts)), written.sums, counts, variant.predict.means.domain)
    write_synthetic(kept, SYNTHETIC / name, params.dataset.text, params.dataset.label)
    return {
        "drawn": len(rows),
        "removed": removing.removed,
        "rows": len(kept),
        "tokens": written.drawn,
        "private_share": written.private_share,
    }


if __name__ == "__main__":
    start(run)
