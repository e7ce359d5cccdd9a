"""Every value is printed with where it comes from."""

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.params.load import file_of, resolve_params
from palimpsest.params.resolve import Knob, knobs
from palimpsest.params.text import to_yaml

ROOT = Path(__file__).parents[2]
CONTENT: dict[str, Any] = {
    "version": "1",
    "dataset": {
        "asset": "a", "task": "classify", "private": "a.csv", "public": "b.csv", "text": "text", "label": "label",
        "labels": {"x": "one", "y": "two"}, "n_public": 2400, "max_length": 1000,
    },
    "privacy": {"budget": {"epsilon": 10}},
    "lms": {"dp3": {"epsilon": 3, "epochs": 6, "batch": 64}},
    "variants": {"dp3": {"method": "dp_lm"}, "evolve3": {"method": "evolve", "epsilon": 3, "class_means": None}},
}  # fmt: skip
FILE, WORKED_OUT, DEFAULT = "params.yaml", "worked out", "default"


def found() -> dict[str, Knob]:
    file = file_of(to_yaml(CONTENT))
    return {knob.key: knob for knob in knobs(file, resolve_params(file))}


def test_each_value_says_where_it_comes_from() -> None:
    told = {key: (knob.value, knob.origin, knob.changed) for key, knob in found().items()}
    wanted = {
        "dataset.asset": ("a", FILE, True),
        "dataset.max_length": (1000, FILE, False),  # written, and the default
        "dataset.test": (None, DEFAULT, False),
        "lms.dp3.batch": (64, FILE, True),
        "lms.dp3.epochs": (6.0, FILE, False),
        "lms.dp3.purpose": ("release", WORKED_OUT, False),
        "lms.dp3.discriminator_weight": (1.0, WORKED_OUT, False),
        "lms.dp3.learning_rate": (0.002, DEFAULT, False),
        "audit.size": (480, WORKED_OUT, False),
        "variants.evolve3.class_means": (None, FILE, True),
        "variants.evolve3.rounds": (4, DEFAULT, False),
        "authors.base.kind": ("base", WORKED_OUT, False),
        "run.dp_train": (["dp3"], WORKED_OUT, False),
    }
    assert {key: told[key] for key in wanted} == wanted


def printed(*options: str) -> list[str]:
    done = CliRunner().invoke(app, ["params", *options, "--workspace", str(ROOT)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_the_command_prints_all_or_what_was_changed() -> None:
    every, changed = printed("--all"), printed("--changed")
    assert "lms.dp3.epochs: 3.0  # params.yaml" in changed
    assert "lms.dp3.batch: 256  # worked out" in set(every) - set(changed)
    assert [line for line in every if line in set(changed)] == changed == printed()
    assert len(every) > 3 * len(changed)
