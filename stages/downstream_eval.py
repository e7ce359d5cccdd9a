"""Trains classifiers, or a language model, on synthetic rows and scores them on the real test rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.audit.finetune import FinetuneSettings, next_token, score_finetuned
from palimpsest.audit.groups import GroupScores, LabelFit, group_scores
from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.audit.statistics import RESAMPLES, Bootstrap
from palimpsest.audit.utility import (
    Evaluation,
    LinearSettings,
    Scored,
    UtilityAudit,
    gap_closed,
    minilm_lr,
    retention,
    tfidf_lr,
)
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records import schema
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.vouched import EMBEDDED
from palimpsest.records.write import Chosen, draw_mask
from palimpsest.workspace import BASELINES, NEXT_TOKEN_LM, PUBLIC_LM, PUBLIC_ONLY, REAL
from stages.audited import conclude_on_error, metric_of_subject, read_one_each, read_result, real_rows, save, written
from stages.common import start
from stages.tools import OF_MEASURED, StoredEncoders, measuring_encoder, uses_half
from stages.vouching import resolve_vouched

Texts = list[str]
Labels = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows for training, or for scoring."""

    rows: Sequence[Record]
    asset: bool  # private rows of the asset, not synthetic or public ones

    @property
    def texts(self) -> Texts:
        """The rows' texts."""
        return [row.text for row in self.rows]

    @property
    def labels(self) -> Texts:
        """The rows' labels."""
        return [row.label or "" for row in self.rows]

    def of(self, place: int, column: str | None) -> "Part":
        """Return the same rows with the label of one of several label columns."""
        rows = [Record(row.text, schema.parts(row.label, column)[place]) for row in self.rows]
        return replace(self, rows=rows)


@conclude_on_error(metric_of_subject("utility"))
def run(name: str) -> None:
    """data/synthetic/<variant>.parquet, train and test of data/private -> utility.json of the variant."""
    params = load()
    judges = Judges(params)
    rows, test = judges.part(written(params, name), asset=False), judges.part(read_one_each("test"), asset=True)
    audit, baselines = judges.score(rows, test), read_result(BASELINES)
    scores = audit.scores(
        lambda evaluator, evaluation: compare_with_baselines(evaluation, baselines, evaluator, params.seed)
    )
    fit = judges.label_fit(judges.part(real_rows(params), asset=True), rows, test)
    save(name, "utility", replace(scores, label_fit=fit, groups=judges.groups(rows, test, audit)).to_json(name))


@dataclass(frozen=True)
class Judges:
    """All evaluators of params.yaml."""

    params: Params
    others: Path = OF_MEASURED  # the memory for vectors of texts that are not private

    def part(self, rows: Sequence[Record] | Sequence[SplitRow], asset: bool) -> Part:
        """Choose the rows that evaluators may read, at most `utility.most_rows`: equal rows give an equal choice."""
        some = Chosen[Record | SplitRow](rows, draw_mask(len(rows), self.params.utility.most_rows, self.params.seed))
        return Part([Record(row.text, row.label) for row in some], asset)

    def score(self, train: Part, test: Part) -> UtilityAudit:
        """Train on the rows of `train` and score on those of `test`.

        Where records have several labels, classifiers learn the joined one, and each separately: `minilm_lr: stars`.
        """
        evaluators: Mapping[str, Callable[[Part, Part, Labels], Evaluation]] = {
            "minilm_lr": self._minilm,
            "tfidf_lr": self._tfidf,
            "finetuned": self._finetuned,
            NEXT_TOKEN: self._next_token,
        }
        asked, labels = self.params.utility.evaluators, tuple(self.params.dataset.labels)
        evaluations = {str(name): evaluators[name](train, test, labels) for name in asked}
        for place, (attribute, labels) in enumerate(self._attributes.items()):
            one, other = (part.of(place, self.params.dataset.label) for part in (train, test))
            apart = [name for name in asked if name != NEXT_TOKEN]
            evaluations |= {f"{name}: {attribute}": evaluators[name](one, other, labels) for name in apart}
        return UtilityAudit(len(train.rows), len(test.rows), evaluations)

    def label_fit(self, real: Part, rows: Part, test: Part) -> LabelFit | None:
        """Measure how often `rows` bear the label that `tfidf_lr`, trained on `real`, gives them; None without labels.

        The classifier shares nothing with the writer of the rows. Test rows are asked about beside them.
        """
        if not self.params.dataset.labels:
            return None
        both = Part([*rows.rows, *test.rows], asset=True)
        return LabelFit.of(self._tfidf(real, both, tuple(self.params.dataset.labels)).item_accuracy, len(rows.rows))

    def groups(self, rows: Part, test: Part, audit: UtilityAudit) -> dict[str, GroupScores]:
        """Score the declared groups among these rows by the classifiers that learned from them."""
        told = {name: one.item_accuracy for name, one in audit.evaluations.items() if one.scored.per_class}
        return group_scores(self.params.utility.groups, rows.texts, test.texts, told)

    def _minilm(self, train: Part, test: Part, labels: Labels) -> Evaluation:
        features, held = (self._vectors(part) for part in (train, test))
        return minilm_lr(features, train.labels, held, test.labels, labels, self._linear)

    def _tfidf(self, train: Part, test: Part, labels: Labels) -> Evaluation:
        return tfidf_lr(train.texts, train.labels, test.texts, test.labels, labels, self._linear)

    def _finetuned(self, train: Part, test: Part, labels: Labels) -> Evaluation:
        utility = self.params.utility
        tuning = FinetuneSettings(
            seeds=range(utility.seeds), half=uses_half(self.params), **utility.finetune.model_dump()
        )
        folder = resolve_vouched(self.params, "models.classifier")
        return score_finetuned(folder, train.texts, train.labels, test.texts, test.labels, labels, tuning)

    def _next_token(self, train: Part, test: Part, _: Labels) -> Evaluation:
        utility, draws = self.params.utility, Bootstrap(resamples=RESAMPLES, seed=self.params.seed)
        schooling = utility.next_token.schooling(named=self.params.models.next_token != EMBEDDED)
        most, seeds = utility.next_token.max_tokens, range(utility.seeds)
        return next_token(NEXT_TOKEN_LM, train.texts, test.texts, schooling, most, seeds, draws)

    def _vectors(self, part: Part) -> np.ndarray:
        encode = self._encoders.rows if part.asset else self._encoders.others
        return encode(part.texts)

    @cached_property
    def _encoders(self) -> StoredEncoders:
        return measuring_encoder(self.params, self.others)

    @property
    def _attributes(self) -> Mapping[str, Labels]:
        data = self.params.dataset
        return schema.values(tuple(data.labels), data.label)

    @property
    def _linear(self) -> LinearSettings:
        return LinearSettings(range(self.params.utility.seeds))


def compare_with_baselines(evaluation: Evaluation, baselines: Mapping[str, Any], evaluator: str, seed: int) -> Scored:
    """Add retention and gap closed, against the baselines' answers on the same test rows."""
    own = evaluation.item_accuracy
    real, public = (np.array(baselines[row][evaluator]) for row in (REAL, PUBLIC_ONLY))
    draws = Bootstrap(resamples=RESAMPLES, seed=seed)
    closed, alone = gap_closed(own, public, real, draws), baselines.get(PUBLIC_LM)
    over = None if alone is None else retention(own, np.array(alone[evaluator]), draws)
    kept = retention(own, real, draws)
    return replace(evaluation.scored, retention=kept, gap_closed=closed, compared=True, over_public_lm=over)


if __name__ == "__main__":
    start(run)
