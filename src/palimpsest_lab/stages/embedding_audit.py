"""Measures how well a language model's hidden states separate the labels, and how well it predicts the test rows."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from palimpsest.devices import device
from palimpsest.files import write_json
from palimpsest.methods.dp_lm import likelihood
from palimpsest.methods.dp_lm.model import ConditionalLm, new_model, require_context
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.models.settings import BARE
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.record import Record
from palimpsest.workspace import BASE_LM, MODEL_METRICS, MODELS
from palimpsest_lab.audits.separation import ForestSettings, Projection, SeparationAudit, project, separation
from palimpsest_lab.settings import audit_of
from stages.audited import conclude_on_error, records_of
from stages.common import start

_BATCH = 100


@conclude_on_error(lambda name: [MODEL_METRICS / f"{name}.json"])
def run(name: str) -> None:
    """models/<name>, private train and test rows -> reports/metrics/models/<name>.json."""
    params = load()
    model, tokenizer = load_fitted(params, name)
    model.to(device())
    train, test = (select_rows(part, audit_of(params).separation.rows) for part in ("train", "test"))
    audit = measure_states(params, model, tokenizer, train, test, template_of(params, name))
    write_json(MODEL_METRICS / f"{name}.json", audit.to_json(name))


def load_fitted(params: Params, name: str) -> tuple[ConditionalLm, PreTrainedTokenizerBase]:
    """Load the fitted model of that folder; "base" is the public model that all of them started from."""
    if name == BASE_LM.name:
        return new_model(BASE_LM, max(1, len(params.dataset.labels)), 1, params.seed)
    return ConditionalLm.load(MODELS / name)


def template_of(params: Params, name: str) -> str:
    """Return the template before a text: that of the fitted model's training; for the public model only the label."""
    return params.lms[name].train.prompt if name in params.lms else BARE


def select_rows(part: str, limit: int) -> list[Record]:
    """Select at most `limit` rows of a private split, each of another unit, evenly: a file may be sorted by label."""
    rows = records_of(part)
    return rows[:: -(-len(rows) // limit) or 1]


def measure_states(
    params: Params,
    model: ConditionalLm,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Record],
    test: Sequence[Record],
    template: str,
) -> SeparationAudit:
    """Measure separation and drawings from hidden states, and the test loss given the label."""
    wanted, labels = audit_of(params).separation, tuple(params.dataset.labels)
    rows = serialiser(tokenizer, params.dataset.labels, wanted.max_tokens, "text", template)
    require_context(model, rows.longest_prompt + wanted.max_tokens + 1)  # 1: EOS
    known, held = (likelihood.mean_states(model, rows, part, _BATCH) for part in (train, test))
    targets, truth = ([row.label or "" for row in part] for part in (train, test))
    forests = ForestSettings(wanted.trees, range(params.utility.seeds))
    return SeparationAudit(
        separation=separation(known, targets, held, truth, labels, forests),
        lm_loss=float(likelihood.record_losses(model, rows, test, _BATCH).mean()),
        projections={method: Projection.of(project(held, method, params.seed), truth) for method in wanted.projections},
    )


if __name__ == "__main__":
    start(run)
