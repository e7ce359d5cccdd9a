"""How many of the invented world's facts do methods state, each alone and with `restate` behind it, at equal epsilon?

    python -m bench.facts FOLDER            # makes the workspace, runs it and prints the table
    python -m bench.facts FOLDER --values   # prints the values that the rule proposes from the public tickets

The workspace is the full demo's, with other variants. Which products there are is asked privately. What can be wrong
with one is a list that a public rule reads off the public tickets: neither a private ticket nor the generator is read.

Feeds docs/lab/methods.md. It makes its folder.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from palimpsest.files import read_json
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.params.text import to_yaml
from palimpsest.work.begin import make_workspace
from palimpsest.work.context import contents, environment
from tools.world.generate import make_world
from tools.world.pack import WORLDS, pack

ROOT = Path(__file__).parents[1]
PRODUCT = r"[A-Z][a-z]+ (?:\d|Lite|Mini|Pro|Max)\b"  # as the public tickets write them
BEHIND = re.compile(PRODUCT + r"(?: keeps| started| still)? ([a-z' ]+)")
LONGEST, LEAST, ALIKE = 6, 5, 0.5
AUDITS = ("facts_audit", "downstream_eval")


def proposed(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Phrases that stand behind a product in both forms, "hums at night" and "humming at night": value -> other form.

    A phrase grows word by word while at least half of the texts that go so far go on alike.
    """
    tails = [found[1].split()[:LONGEST] for text in texts for found in BEHIND.finditer(text)]
    counts = Counter(tuple(tail[:size]) for tail in tails for size in range(1, len(tail) + 1))
    longer: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for phrase, count in counts.items():
        if count >= ALIKE * counts.get(phrase[:-1], count):
            longer.setdefault(phrase[:-1], []).append(phrase)
    ended = [
        phrase for phrase, count in counts.items() if count >= LEAST and phrase not in longer and _alike(phrase, longer)
    ]
    pairs = ((one, other) for one in ended for other in ended if one[1:] == other[1:] and one[0][:2] == other[0][:2])
    both = [
        (" ".join(one), " ".join(other)) for one, other in pairs if other[0].endswith("ing") > one[0].endswith("ing")
    ]
    return {one: (other,) for one, other in sorted(both)}


def _alike(phrase: tuple[str, ...], longer: Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]) -> bool:
    """Whether each word of it, from the second on, is how most texts go on."""
    return all(phrase[:size] in longer.get(phrase[: size - 1], ()) for size in range(2, len(phrase) + 1))


def settings(values: Mapping[str, tuple[str, ...]], epsilon: float) -> dict[str, Any]:
    """The full demo's params.yaml with each source cheap and restated, and dear and alone."""
    body: dict[str, Any] = YAML(typ="safe", pure=True).load((ROOT / "params.full.yaml").read_text(encoding="utf-8"))
    listed = {value: list(others) for value, others in values.items()}
    told = {"attributes": {"product": {"pattern": PRODUCT}, "symptom": {"values": listed}}}
    lm, judged = body["lms"]["dp3"], body["variants"]["dp3"] | {"rows": 2000}
    chosen, evolved = {"method": "select", "rows": 2000}, {"method": "evolve", "from": "corpus", "rows": 2000}
    body |= {
        "lms": {"lm2": lm | {"epsilon": 1.8}, "lm3": lm},
        "discriminators": {"judge2": {"from": "lm2", "epsilon": 2.2}, "judge3": {"from": "lm3", "epsilon": epsilon}},
        "taught": {},
        "authors": {},
        "decoders": {},
        "variants": {
            "select1": chosen | {"epsilon": 1.0},
            "select3": chosen | {"epsilon": epsilon},
            "evolve1": evolved | {"epsilon": 1.0},
            "evolve3": evolved | {"epsilon": epsilon},
            "dp2": judged | {"from": "judge2"},
            "dp3": judged | {"from": "judge3"},
            **{f"{name}_told3": _restated(told, epsilon, name) for name in ("select1", "evolve1", "dp2")},
        },
        "release": {"variants": []},
    }
    body["runs"] = {"facts_audit": list(body["variants"])}
    body["privacy"]["budget"]["epsilon"] = 20.0
    return body


def _restated(told: Mapping[str, Any], epsilon: float, source: str) -> dict[str, Any]:
    return {"method": "restate", "from": source, "epsilon": epsilon, **told}


def table(folder: Path) -> str:
    """Facts, leaks and utility of each variant that is done."""
    metrics, heads = folder / "reports/metrics", ["", "epsilon", "rows", "facts", "mispaired", "leaked", "retention"]
    done = sorted(path.parent for path in metrics.glob("*/facts.json"))
    rows = [heads, ["---"] * len(heads), *(_row(folder, path) for path in done)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(folder: Path, path: Path) -> list[str]:
    """Of one variant: what leaked are details and secrets, and retention is a share of what real rows teach."""
    facts, told = (read_json(path / f"{name}.json") for name in ("facts", "generation"))
    spent = read_json(folder / "reports/receipts" / f"{path.name}.json")["epsilon"]
    scores = [path / "utility.json", path.parent / "real/utility.json"]
    own, real = (read_json(each)["evaluators"] if each.exists() else {} for each in scores)
    kept = ", ".join(f"{name} {own[name]['accuracy'] / real[name]['accuracy']:.3f}" for name in own if name in real)
    leaked = f"{facts['individual']['leaked']} / {facts['canaries']['leaked']}"
    carried = f"{facts['carried']} of {facts['total']}"
    return [f"`{path.name}`", f"{spent:.3f}", str(told["rows"]), carried, str(facts["mispaired"]), leaked, kept]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--values", action="store_true", help="print the proposed values and stop")
    parser.add_argument("--table", action="store_true", help="print the table of what is done and stop")
    args = parser.parse_args()
    if args.table:
        print(table(args.folder))
        return
    values = proposed([record.text for record in make_world(WORLDS["full"]).public])
    if args.values:
        print(to_yaml(values))
        return
    pack("full", WORLDS["full"])
    text = to_yaml(settings(values, args.epsilon))
    make_workspace(args.folder, {FILE: text, **contents(loads(text))})
    names = settings(values, args.epsilon)["variants"]
    for command in (["register"], ["run", "--yes", *(f"{audit}@{name}" for audit in AUDITS for name in names)]):
        words = [sys.executable, "-m", "palimpsest.cli.main", *command]
        subprocess.run(words, cwd=args.folder, env=environment(), check=True)
    print(table(args.folder))


if __name__ == "__main__":
    main()
