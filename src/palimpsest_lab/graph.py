"""The lab's stages, in the order of dvc.yaml."""

from palimpsest.graph.stage import (
    COLUMNS,
    GUESSING,
    HELD,
    HOLDOUT,
    MODEL,
    MODEL_BELOW,
    NAME,
    RECEIPT,
    ROWS,
    TEST,
    TEXTS,
    TRAIN,
    Each,
    Feature,
    Stage,
    computes,
    measures,
)
from palimpsest.workspace import BASE_LM, EVOLVED, FACTS, FAMILIARITY, METRICS, MODEL_METRICS, REAL, UNTOUCHED, Zone

_HERE = "palimpsest_lab.stages"
_BY_ROUND = ("seed", "dataset.labels", "models.encoder")
STAGES = (
    computes(
        "evolution_audit", "Measure, round by round, how far the selected texts are from the private rows", "evolution",
        _BY_ROUND, (EVOLVED / f"{NAME}.parquet", TRAIN, HOLDOUT), Each("run.evolution_audit", "variant"),
        module=f"{_HERE}.evolution_audit",
    ),
    computes(
        "eda_audit",
        "Measure, round by round, how far the embeddings are from the private rows, and how their votes spread",
        "evolution", _BY_ROUND, (EVOLVED / f"{NAME}.npz", TRAIN, HOLDOUT), Each("run.eda_audit", "variant"),
        module=f"{_HERE}.eda_audit",
    ),
    measures(
        "facts_audit", "Look for the world's facts in the synthetic rows, those of many and those of one", "facts",
        COLUMNS, (ROWS, FACTS), Each("run.facts_audit", "variant"), (Feature.WORLD,),
        module=f"{_HERE}.facts_audit",
    ),
    computes(
        "incontext_baseline",
        "Let a language model answer behind real demonstrations, to see whether it can judge", "incontext",
        ("seed", *COLUMNS, "dataset.labels", "models.judge", "utility.in_context"),
        (BASE_LM, UNTOUCHED, TRAIN, TEST), Each("run.in_context_baseline", "row"),
        module=f"{_HERE}.incontext_eval",
    ),
    computes(
        "incontext_eval", "Let that language model answer behind demonstrations from synthetic rows", "incontext",
        ("seed", *COLUMNS, "dataset.labels", "models.judge", "utility.in_context"),
        (BASE_LM, UNTOUCHED, ROWS, TEST, METRICS / REAL / "incontext.json"), Each("run.in_context", "row"),
        module=f"{_HERE}.incontext_eval",
    ),
    Stage(
        "familiarity_audit", "Ask whether the public language model may have read the test rows before", Zone.PRIVATE,
        params=("seed", "audit.resamples"), deps=(BASE_LM, UNTOUCHED, TEST, TEXTS, HELD), metrics=(FAMILIARITY,),
        needs=(Feature.NAMED,), gpus=1,
        module=f"{_HERE}.familiarity_audit",
    ),
    computes(
        "clipping_audit", "Ask how far clipping a model's logits moves what private contexts agree on", "clipping",
        (*COLUMNS, "dataset.labels"), (BASE_LM, TRAIN, HELD), Each("run.clipping_audit", "model"),
        module=f"{_HERE}.clipping_audit",
    ),
    computes(
        "shadow_mia", "Attack the model with shadow models, which never saw what is guessed about",
        "shadow_membership", (*GUESSING, "models.prompts"),
        (MODEL_BELOW, BASE_LM, RECEIPT, TRAIN, HOLDOUT, TEST), Each("run.shadow_mia"),
        module=f"{_HERE}.shadow_mia",
    ),
    Stage(
        "embedding_audit", "Ask how well the language model's hidden states tell the labels of private rows apart",
        Zone.PRIVATE, Each("run.embedding_audit", "model"), ("seed", "dataset", "audit.separation", "utility.seeds"),
        (MODEL, TRAIN, TEST), metrics=(MODEL_METRICS / f"{NAME}.json",), needs=(Feature.LABELS,), gpus=1,
        module=f"{_HERE}.embedding_audit",
    ),
    computes(
        "prompt_mia", "Ask a judge about members and others behind one synthetic row, after members behind themselves",
        "prompt_membership", (*GUESSING, "models.judge", "utility.in_context", "audit.prompts"),
        (BASE_LM, UNTOUCHED, ROWS, RECEIPT, TRAIN, HOLDOUT), Each("run.prompt_mia", "variant"),
        module=f"{_HERE}.prompt_mia",
    ),
)  # fmt: skip
