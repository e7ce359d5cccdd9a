"""Write the synthetic rows of one variant: post-processing of the fitted model, free."""

from palimpsest.generators.dp_lm.artifact import DpLmArtifact
from palimpsest.generators.dp_lm.generator import DpLm
from palimpsest.params.dp_lm import DpLmSettings
from palimpsest.params.load import load
from palimpsest.records.write import write_synthetic
from stages.common import BASE_LM, MODELS, SYNTHETIC, start


def run(name: str) -> None:
    """models/<variant> -> data/synthetic/<variant>.jsonl, .parquet."""
    params = load()
    variant = params.variants[name]
    settings = DpLmSettings(train=variant.train, generate=variant.generate)
    generator = DpLm(settings, params.schema_of_data, BASE_LM, params.seed)
    artifact = DpLmArtifact.load(MODELS / name)
    rows = list(generator.sample(artifact, artifact.counts(variant.generate.rows)))
    write_synthetic(rows, SYNTHETIC / name, params.dataset.text, params.dataset.label)


if __name__ == "__main__":
    start(run)
