"""The smallest settings of each method that run its whole code: sections of an invented workspace's params.yaml.

Settings that a person need not decide keep their defaults.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palimpsest import __version__
from palimpsest.methods.phrases.declaration import PhrasesSettings
from palimpsest.methods.phrases.declaration import plan as plan_phrases
from palimpsest.methods.shared.base import Budget
from palimpsest.params.file import File
from palimpsest.params.resolve import resolve, to_plain
from palimpsest.params.schema import Params
from palimpsest.records.schema import PublicSchema

ASSET, TEXT, LABEL = "invented_canaries", "text", "label"
EPSILON, DELTA = 1.0, 1e-7  # of every claim: at a larger epsilon no black-box attack sees a missing noise
CLIPPING_NORM = 0.01  # far below the length of any gradient here
_CAP = 100.0  # of the invented asset's budget

Section = Mapping[str, Any]

NO_FILTERS: Section = {"chain": []}
COUNTED: Section = {"label_counts": "prior"}
VOTES: Section = {"neighbours": 1}
_ONE_PHRASE: Section = {"most": 1, "common": 1.0, **COUNTED}
_DP_SGD: Section = {
    "schedule": "constant", "warmup": 0.0, "clipping_norm": CLIPPING_NORM, "max_tokens": 12, "micro_batch": 128,
    "checkpoint_steps": 1000,
}  # fmt: skip
PROMPT: Section = {
    "private": "{label}{separator}{text}{separator}", "public": "{label}{separator}", "text_tokens": 8
}  # fmt: skip
_SMALLEST: Section = {
    "version": __version__,
    "privacy": {"budget": {"epsilon": _CAP, "delta": DELTA}},
    "models": {"lm": "embedded", "classifier": None, "next_token": "embedded"},
    "utility": {"evaluators": ["tfidf_lr"]},
    "release": {"variants": []},
    "variants": {},
}


def invented_params(seed: int, sections: Section, encoder: Path) -> Params:
    """Settings of an invented workspace. No seed fixes the noise.

    `sections` are those of `Params` whose values are not the defaults; stages that `run` does not name do not run.
    """
    data = sections["dataset"]
    own = {"seed": seed, "dataset": data, "audit": {"size": data["n_public"]}}
    models = {**_SMALLEST["models"], "encoder": str(encoder)}
    body = to_plain(resolve(File.model_validate({**_SMALLEST, **own, "models": models})))
    return Params.model_validate({**body, **sections, "run": {**body["run"], **sections["run"]}})


def dataset(labels: Mapping[str, str], n_public: int) -> Section:
    """The section `dataset`. The files are named and never read: the stages before it did not run."""
    return {
        "asset": ASSET, "task": "classify", "private": "invented", "test_share": 0.0, "public": "invented public",
        "public_labels": False, "public_test": "invented public", "text": TEXT, "label": LABEL, "labels": dict(labels),
        "n_public": n_public,
    }  # fmt: skip


def variant(method: str, epsilon: float = EPSILON, **settings: Any) -> Section:
    """A variant of that method, to be released; settings that are not given have the defaults of params.yaml."""
    return {"method": method, "purpose": "release", "epsilon": epsilon, method: settings}


def language_model(epsilon: float, epochs: int, batch: int, learning_rate: float) -> Section:
    """A language model of `dp_lm`, without a discriminator."""
    train = {
        **_DP_SGD, **COUNTED, "epochs": epochs, "batch": batch, "learning_rate": learning_rate,
        "discriminator_weight": 0.0, "discriminator_reads": "hidden", "freeze_embeddings": False,
    }  # fmt: skip
    return {"purpose": "release", "epsilon": epsilon, "train": train}


def discriminator(epochs: int, batch: int, learning_rate: float) -> Section:
    """A linear discriminator that reads the sentence encoder."""
    train = {**_DP_SGD, "epochs": epochs, "batch": batch, "learning_rate": learning_rate}
    return {"purpose": "release", "epsilon": EPSILON, "train": train}


def predict(tokens: int) -> Section:
    """A variant of `predict` that writes so many tokens from each batch of one record."""
    return variant(
        "predict", clipping="fixed", batch_size=1, tokens=tokens, top_k=0, max_tokens=tokens, typical_tokens=tokens,
        keep_unfinished=True, together=4096, micro_batch=512, checkpoint_tokens=tokens, class_means=None,
        prompt=PROMPT, filters=NO_FILTERS, **COUNTED,
    )  # fmt: skip


def steer(rows: int, pool: int, domain: float) -> Section:
    """A variant of `steer` that writes short texts at one strength."""
    return variant(
        "steer", rows=rows, pool=pool, domain=domain, pilot=16, strengths=[1.0], max_tokens=8, filters=NO_FILTERS,
        **COUNTED,
    )  # fmt: skip


def phrases(rows: int) -> Section:
    """A variant of `phrases` where a record counts for one phrase, which nearly determines the written text."""
    return variant("phrases", rows=rows, shown=1, temperature=0.01, max_tokens=8, filters=NO_FILTERS, **_ONE_PHRASE)


def enough_phrases() -> int:
    """Number of records with the same phrase from which it comes out without noise in such a variant."""
    schema = PublicSchema(ASSET, "text", TEXT, 1, 1)
    return int(plan_phrases(PhrasesSettings(**_ONE_PHRASE), schema, Budget(EPSILON, DELTA)).numbers["threshold"])


def evolve(epsilon: float, rows: int, rounds: int, expand: int) -> Section:
    """A variant of `evolve`."""
    asked = {"rows": rows, "rounds": rounds, "expand": expand, "votes": VOTES}
    return variant("evolve", epsilon, **asked, class_means=None, filters=NO_FILTERS, **COUNTED)


def embed(rows: int, rounds: int, start: int, offspring: int, parents: int) -> Section:
    """A variant of `embed`."""
    return variant(
        "embed", rows=rows, rounds=rounds, start=start, offspring=offspring, parents=parents,
        selection={"kind": "gaussian", "neighbours": 1}, eda={"components": 1}, readable=None, class_means=None,
        filters=NO_FILTERS, decode={"samples": 1, "corrections": 0, "max_tokens": 4}, **COUNTED,
    )  # fmt: skip


def decoder() -> Section:
    """A decoder that is hardly trained: its texts are not attacked."""
    return {"prefix": 1, "width": 8, "epochs": 1, "max_tokens": 8, "sentences": 200, "heldout": 10}
