"""Every stage of the graph, in the order of dvc.yaml.

A new one is a declaration here and its module in `stages`, or an entry point of a package (`extensions`). The stage of
a method that writes rows needs none: it follows from the method's declaration.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from palimpsest import extensions
from palimpsest.graph.stage import (
    BELOW,
    COLUMNS,
    EVALUATED,
    GUESSING,
    HELD,
    HOLDOUT,
    MODEL,
    MODEL_BELOW,
    MODEL_RECEIPT,
    NAME,
    PRIVATE_FILE,
    PUBLIC_FILE,
    PUBLIC_TEST_FILE,
    READ,
    RECEIPT,
    ROWS,
    TEST,
    TEST_FILE,
    TEXTS,
    TRAIN,
    DvcPlot,
    Each,
    Feature,
    Stage,
    computes,
    measures,
    metric_files,
)
from palimpsest.methods.registry import CHARGED
from palimpsest.methods.shared.method import Reads
from palimpsest.workspace import (
    BASE_LM,
    BASELINES,
    CARD,
    CLASSIFIER_METRICS,
    DECODER_METRICS,
    DECODERS,
    EMBEDDINGS,
    EVOLVED,
    FACTS,
    INPUTS,
    MANIFEST,
    METRICS,
    MODEL_RECEIPTS,
    MODELS,
    NEXT_TOKEN_LM,
    PAGE,
    PLOTS,
    PUBLIC_LM,
    PUBLIC_ONLY,
    RAW,
    REAL,
    RECEIPTS,
    RELEASE,
    ROWS_REPORT,
    SCORES,
    SOURCES,
    STATEMENT,
    SUMMARY,
    SYNTHETIC,
    TAUGHT,
    UNTOUCHED,
    WRITTEN,
    ZERO_SHOT,
    Zone,
)

_LABELLED = ("dataset.label", "dataset.labels")
_CLASSIFIERS = ("models.encoder", "models.classifier", "utility", "compute.precision")
# Read by every stage that asks private rows something under a charge of its own.
# What is public about the data set's rows. Where they lie, and how they were read, shows in the files of _MEMBERS.
_FACTS = (
    "asset", "task", "text", "label", "labels", "json_schema", "fields", "n_public", "max_length", "unit.column",
    "unit.max_rows", "unit.persons",
)  # fmt: skip
_ASKED = (*(f"dataset.{fact}" for fact in _FACTS), "privacy.budget.delta", "testing")
_MEMBERS = (TRAIN, MANIFEST)


# What a method reads -> what its stage depends on, in this order.
_FILES: Mapping[Reads, tuple[Path, ...]] = {
    Reads.TEXTS: (TEXTS,),
    Reads.START: (Path(READ),),
    Reads.EMBEDDINGS: (EMBEDDINGS,),
    Reads.AUTHOR: (Path(READ),),
    Reads.HELDOUT: (HELD,),
    Reads.BASE: (BASE_LM, UNTOUCHED),
    Reads.READER: (MODELS / BELOW,),
    Reads.DECODER: (DECODERS / BELOW,),
    Reads.SOURCE: (SYNTHETIC / f"{BELOW}.parquet", RECEIPTS / f"{BELOW}.json"),
    Reads.SOURCES: (SYNTHETIC / f"{BELOW}.parquet", RECEIPTS / f"{BELOW}.json"),  # of each
}


def _declare_writer(stage: str) -> Stage:
    """The stage that writes the rows of each variant of a method, or of several, under a charge of its own."""
    methods = [known for known in CHARGED if known.stage == stage]
    first, reads = methods[0], {what for known in methods for what in known.reads}
    authored = Reads.AUTHOR in reads
    listed, several, filed = f"run.{stage}", first.source == "several", authored or Reads.START in reads
    over = Each(listed, "variant") if first.source == "none" else Each(listed, authored=filed, several=several)
    params = [*["models.encoder"] * (not several), f"variants.{NAME}", *["seed"] * first.seeded]
    params += [f"authors.{BELOW}"] * authored
    read = reads - {Reads.BASE} if authored else reads  # the base is read where it is the author
    deps = dict.fromkeys(path for what, paths in _FILES.items() if what in read for path in paths)
    rounds = [EVOLVED / f"{NAME}{first.rounds}"] if first.rounds else []
    labelled = all(known.tasks == ("classify",) for known in methods)
    return Stage(
        stage, first.does, Zone.PRIVATE, over, (*_ASKED, *params), (*_MEMBERS, *deps),
        (*rounds, SYNTHETIC / f"{NAME}.jsonl", ROWS), metric_files("generation"), receipt=RECEIPT,
        needs=(Feature.LABELS,) if labelled else (), module="fit", gpus=1,
    )  # fmt: skip


_fetches = partial(Stage, zone=Zone.PUBLIC, retries=1)  # public work, which may be tried again

# The stages of methods, from their declarations. Those with a place of their own are taken out below.
_written = {stage: _declare_writer(stage) for stage in sorted({known.stage for known in CHARGED})}
STAGES = (
    Stage(
        INPUTS.name,
        "Write down what the other stages run on that no stage makes, the code of each and the public models",
        Zone.PUBLIC, outs=(INPUTS,), always=True, cached=False,
    ),
    Stage(
        "world", "Unpack the invented world of the embedded data set", Zone.PRIVATE, params=("world",),
        outs=(RAW / "private.jsonl", RAW / "test.jsonl", FACTS, RAW / "public.jsonl", RAW / "public_test.jsonl"),
        needs=(Feature.WORLD,),
    ),
    _fetches(
        "write_public", "Let an author write the public file from labels and their descriptions, shown no text",
        over=Each("run.write_public", authored=True),
        params=(
            "seed", "dataset.text", "dataset.label", "dataset.labels", "dataset.written", "models.lm",
            f"authors.{BELOW}",
        ),
        outs=(WRITTEN,), needs=(Feature.WRITTEN,), gpus=1,
    ),
    Stage(
        "preprocess", "Read and check the files, draw the audit subset and its coins, write the splits", Zone.PRIVATE,
        params=("seed", "dataset", "audit.size", "audit.similarity", "models.encoder"),
        deps=(PRIVATE_FILE, TEST_FILE, PUBLIC_FILE),
        outs=(TRAIN, HOLDOUT, TEST, ROWS_REPORT, MANIFEST, TEXTS, HELD), gpus=1,  # where fields are read from texts
    ),
    _fetches(
        "encode_public", "Embed the public texts and the labels' public descriptions",
        params=("dataset.labels", "models.encoder"), deps=(TEXTS,), outs=(EMBEDDINGS,), needs=(Feature.LABELS,),
        gpus=1,
    ),
    _fetches(
        "pretrain", "Train the small language model on public text and teach it prompts, or fetch the named one",
        params=("seed", "dataset.labels", "models.lm", "models.vocabulary", "models.embedded_lm", "models.prompts"),
        deps=(EMBEDDINGS, TEXTS, HELD), outs=(BASE_LM, UNTOUCHED), metrics=(METRICS / "pretrain.json",),
        needs=(Feature.BASE,), gpus=1,
    ),

    # What is fitted to private rows, and what is written from it.
    Stage(
        "dp_train", "Fine-tune a language model on private rows with DP-SGD, alone or together with its discriminator",
        Zone.PRIVATE, Each("run.dp_train", "model"), (*_ASKED, "seed", f"lms.{NAME}"), (*_MEMBERS, BASE_LM), (MODEL,),
        receipt=MODEL_RECEIPT, gpus=1, team=True,
    ),
    Stage(
        "discriminator", "Train a discriminator with DP-SGD behind a fitted language model; both count", Zone.PRIVATE,
        Each("run.discriminator"), (*_ASKED, "seed", "models.encoder", f"discriminators.{NAME}", f"lms.{BELOW}"),
        (*_MEMBERS, MODEL_BELOW, MODEL_RECEIPTS / f"{BELOW}.json"), (MODEL,), receipt=MODEL_RECEIPT,
        gpus=1, team=True,
    ),
    Stage(
        "pplm_generate", "Draw synthetic rows from a fitted model, steered towards each label, and filter them",
        Zone.DP, Each("run.dp_lm"),
        ("seed", "dataset.text", *_LABELLED, "dataset.json_schema", "models.encoder", f"variants.{NAME}"),
        (MODEL_BELOW, MODEL_RECEIPTS / f"{BELOW}.json", BASE_LM, UNTOUCHED, HELD),
        (SYNTHETIC / f"{NAME}.jsonl", ROWS, RECEIPT), metric_files("generation"), gpus=1,
    ),
    _fetches(
        "teach_similar", "Teach a public language model, on public pairs, to go on with a text like the one it read",
        over=Each("run.teach_similar", "model"),
        params=("seed", "dataset.task", "dataset.labels", "models.encoder", f"taught.{NAME}"),
        deps=(EMBEDDINGS, TEXTS, BASE_LM), outs=(TAUGHT / NAME,), gpus=1,
    ),
    _written.pop("private_predict"),
    _written.pop("select"),
    _written.pop("private_evolve"),
    _written.pop("vote_select"),
    _fetches(
        "decoder_pretrain",
        "Teach a copy of the public language model, on public sentences, to write down a sentence embedding",
        over=Each("run.decoder_pretrain", "decoder"), params=("seed", "models.encoder", f"decoders.{NAME}"),
        deps=(TEXTS, HELD, BASE_LM, UNTOUCHED), outs=(DECODERS / NAME,), metrics=(DECODER_METRICS / f"{NAME}.json",),
        gpus=1,
    ),
    _fetches(
        "zero_shot", "Let an author write, shown no record, what embeddings begin with",
        over=Each("run.zero_shot", authored=True),
        params=("seed", "dataset.labels", "models.encoder", f"zero_shot.{NAME}", f"authors.{BELOW}"),
        deps=(EMBEDDINGS, TEXTS, READ), outs=(ZERO_SHOT / f"{NAME}.parquet",), gpus=1,
    ),
    _written.pop("eda_evolve"),
    *_written.values(),
    _fetches(
        "public_only", "The row at epsilon 0: the public texts nearest to each label's public description",
        params=("dataset.text", *_LABELLED, "public_only"), deps=(TEXTS, EMBEDDINGS),
        outs=(SYNTHETIC / f"{PUBLIC_ONLY}.jsonl", SYNTHETIC / f"{PUBLIC_ONLY}.parquet"),
    ),
    _fetches(
        "public_lm", "The other row at epsilon 0: what the public language model writes with the same prompts, alone",
        params=("seed", "dataset.text", *_LABELLED, "dataset.json_schema", "public_only.rows", "public_lm"),
        deps=(BASE_LM, UNTOUCHED, HELD),
        outs=(SYNTHETIC / f"{PUBLIC_LM}.jsonl", SYNTHETIC / f"{PUBLIC_LM}.parquet"), needs=(Feature.PUBLIC_LM,),
        gpus=1,
    ),

    # Utility.
    _fetches(
        "next_token_base", "Train a small language model on public text, or take the named one, to learn from rows",
        params=("seed", "models.next_token", "models.embedded_lm"), deps=(TEXTS, HELD), outs=(NEXT_TOKEN_LM,),
        needs=(Feature.NEXT_TOKEN,), gpus=1,
    ),
    Stage(
        "baseline_eval", "Score classifiers trained on the real and on the public_only rows", Zone.PRIVATE,
        params=("seed", *_LABELLED, *_CLASSIFIERS),
        deps=(TRAIN, TEST, SYNTHETIC / f"{PUBLIC_ONLY}.parquet", SYNTHETIC / f"{PUBLIC_LM}.parquet", NEXT_TOKEN_LM),
        outs=(BASELINES,),
        metrics=tuple(METRICS / row / "utility.json" for row in (REAL, PUBLIC_ONLY, PUBLIC_LM)),
        gpus=1,
    ),
    computes(
        "downstream_eval", "Train classifiers on the synthetic rows and score them on real test rows", "utility",
        ("seed", *_LABELLED, *_CLASSIFIERS), (ROWS, TRAIN, TEST, BASELINES, NEXT_TOKEN_LM), EVALUATED, first=True,
    ),
    Stage(
        "classifier_eval", "Score each classifier that was trained with DP-SGD on the real test rows, without any text",
        Zone.PRIVATE, Each("run.discriminator"), ("seed", "dataset.labels", "models.encoder", "utility.evaluators"),
        (MODEL, MODEL_RECEIPT, TEST, BASELINES), metrics=(CLASSIFIER_METRICS / f"{NAME}.json",),
        needs=(Feature.LABELS,), gpus=1,
    ),

    # Attacks on models and on rows, and what rows repeat.
    computes(
        "mia", "Attack the model by loss and by reference, after a control without any model", "membership",
        GUESSING, (MODEL_BELOW, BASE_LM, RECEIPT, TRAIN, HOLDOUT), Each("run.dp_lm"),
    ),
    measures(
        "ngram_audit", "Count the n-grams that synthetic rows share with training, holdout and public rows", "ngrams",
        ("seed", *COLUMNS, "audit.orders", "audit.resamples"), (ROWS, TRAIN, HOLDOUT, TEXTS), EVALUATED,
        first=True,
    ),
    computes(
        "text_mia", "Attack the rows alone, whatever wrote them, after a control without any rows", "text_membership",
        (*GUESSING, "models.encoder"), (ROWS, RECEIPT, TRAIN, HOLDOUT, TEXTS, EMBEDDINGS),
    ),
    measures(
        "memorisation_audit",
        "Count what the rows repeat of private ones, beside what they share with rows no one read",
        "memorisation", ("seed", *COLUMNS, "audit.similarity", "world"),
        (ROWS, TRAIN, HOLDOUT, TEXTS, FACTS),
    ),
    measures(
        "anonymity_audit", "Try to single out, to link and to infer, on members and on others that were never read",
        "anonymity", ("seed", *COLUMNS, "dataset.labels"), (ROWS, RECEIPT, TRAIN, HOLDOUT, TEXTS),
    ),
    computes(
        "fidelity_audit",
        "Measure how far the rows are from the private ones, beside how far two halves of these are apart", "fidelity",
        ("seed", *COLUMNS, "dataset.labels", "models.encoder", "compute.precision"),
        (ROWS, TRAIN, HOLDOUT, TEXTS, EMBEDDINGS),
    ),
    Stage(
        "public_eval", "Score the rows that may leave on a test file that was declared public", Zone.DP,
        params=("seed", "dataset", *_CLASSIFIERS, "release.variants"),
        deps=(SYNTHETIC, PUBLIC_TEST_FILE, NEXT_TOKEN_LM), metrics=(SCORES,), needs=(Feature.PUBLIC_TEST,),
        gpus=1,
    ),
    measures(
        "structure_audit", "Count the synthetic rows that are JSON, and those that conform to the public schema",
        "structure", (*COLUMNS, "dataset.json_schema"), (ROWS, RECEIPT), EVALUATED, (Feature.JSON,), Zone.DP,
        first=True,
    ),
    measures(
        "fields_audit", "Measure how fields go together, and what a model of texts and fields learns from the rows",
        "fields", ("seed", *COLUMNS, "dataset.labels", "dataset.fields", "utility.most_rows"), (ROWS, TRAIN, TEST),
        EVALUATED, (Feature.FIELDS,),
    ),

    *(stage for stages in extensions.load_group(extensions.STAGES).values() for stage in stages),

    # The pages, and what leaves.
    Stage(
        "report", "Draw the audit page, write the privacy statement and the final table", Zone.PRIVATE,
        params=("dataset", "privacy", "run", "release.variants", "sweeps", "testing"),
        deps=(METRICS, RECEIPTS, SYNTHETIC, PUBLIC_FILE, PUBLIC_TEST_FILE, SOURCES),
        outs=(PAGE, CARD, STATEMENT), metrics=(SUMMARY,),
        plots=(
            DvcPlot(PLOTS / "utility.json", "epsilon", "accuracy", "Accuracy against epsilon"),
            DvcPlot(PLOTS / "overlap.json", "order", "value", "n-gram excess over the holdout"),
            DvcPlot(PLOTS / "bracket.json", "variant", "epsilon", "Between what is proved and attacked"),
            DvcPlot(PLOTS / "risk.json", "attack", "risk", "Singling out, linkability, inference"),
            DvcPlot(PLOTS / "fidelity.json", "measure", "value", "Distance from the private rows"),
        ),
    ),
    Stage(
        "release", "Check, put together and sign what may leave", Zone.DP,
        params=("dataset", "privacy", "release", "run.evaluate", "sweeps", "testing"),
        deps=(SYNTHETIC, SCORES, RECEIPTS, PUBLIC_FILE, PUBLIC_TEST_FILE, SOURCES),
        outs=(RELEASE,), gates=(FACTS,), cached=False,
    ),
)  # fmt: skip

extensions.require_apart("a stage", (stage.name for stage in STAGES))

# The stages that ask private rows something, each under a charge of its own.
SPENDERS = frozenset(stage.name for stage in STAGES if stage.receipt is not None)
