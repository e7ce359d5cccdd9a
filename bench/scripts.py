"""Texts of nine scripts: which filters, audits and evaluators can read them, by this segmentation and by `\\w+`.

    python -m bench.scripts

Members and others are texts of two clauses, of two labels; the rows repeat the first quarter of the members with one
sign of each clause replaced. `kept`: texts of six signs that the length filter keeps, at three words or more. `near`:
these rows with a near-duplicate among the members. 3-grams and 8-grams: the share of the rows' that members have, less
those that others have, in points, and its p; eight signs of an unspaced script are fewer words. The attacks' AUC is of
those members against all others. `tf-idf`: accuracy of a classifier of the members' words on other texts, and with
shuffled labels.

Feeds docs/results/audit.md. It needs no folder.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from ruamel.yaml import YAML

from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import Bootstrap, auc_value
from palimpsest.audit.text_membership import nearest_attack, ngram_attack
from palimpsest.audit.units import Released
from palimpsest.audit.utility import LinearSettings, tfidf_lr
from palimpsest.methods.shared.postprocess import Candidate, LengthFilter
from palimpsest.records import segment
from palimpsest.records.duplicates import SHINGLE, Watched, shingles_of
from palimpsest.records.record import Record

Grammar = Mapping[str, Any]
GRAMMARS: Mapping[str, Grammar] = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SIDE, COPIES, LABELS, SIMILAR = 200, 50, ("good", "bad"), 0.4
ORDERS = (3, 8)
HEAD = ("script", "kept", "near", "3-grams (p)", "8-grams (p)", "n-gram", "words", "signs", "tf-idf", "shuffled")


def main() -> None:
    """Print both tables."""
    for name, pattern in (("this segmentation", None), (r"\\w+", re.compile(r"\w+"))):
        print(f"\n{name}\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        for script, grammar in GRAMMARS.items():
            with patch.object(segment, "_WORD", pattern or segment._WORD):  # noqa: SLF001
                print(f"| {script} | {' | '.join(measure(grammar))} |")


def measure(grammar: Grammar) -> list[str]:
    """Return the cells of one script."""
    rng = np.random.default_rng(0)
    members, others, public, test = (draw_records(grammar, SIDE, rng) for _ in range(4))
    rows = [mistype_clauses(row, grammar, rng) for row in members[:COPIES]]
    released = Released(rows, members, others, [row.text for row in public])
    orders = ngram_audit(released, [], ORDERS, Bootstrap(resamples=256, seed=0)).orders.values()
    found = [ngram_attack(released, 3), nearest_attack(released, "word", 0), nearest_attack(released, "character", 0)]
    aucs = [auc_value(one.members[:COPIES], np.append(one.members[COPIES:], one.nonmembers)) for one in found]
    shares = [share_kept(grammar), share_near(members, rows)]
    learnt = [learn(members, test, shuffled, rng) for shuffled in (False, True)]
    return [
        *(f"{share:.0%}" for share in shares), *(f"{100 * one.excess.value:+.1f} ({one.p:.3f})" for one in orders),
        *(f"{value:.2f}" for value in [*aucs, *learnt]),
    ]  # fmt: skip


def draw_records(grammar: Grammar, count: int, rng: np.random.Generator) -> list[Record]:
    """Draw labelled texts of two clauses."""
    labels = [LABELS[place] for place in rng.integers(2, size=count)]
    return [Record(draw_text(grammar, label, rng), label) for label in labels]


def draw_text(grammar: Grammar, label: str, rng: np.random.Generator) -> str:
    """Draw a text of two clauses."""
    clauses = [
        grammar["join"].join(str(rng.choice(grammar[slot])) for slot in ("times", "things", label)) for _ in range(2)
    ]
    return str(grammar["comma"].join(clauses) + grammar["end"])


def mistype_clauses(row: Record, grammar: Grammar, rng: np.random.Generator) -> Record:
    """Replace one letter of each clause by another of the text."""
    letters = [sign for sign in row.text if sign.isalpha()]
    clauses = row.text.split(grammar["comma"])
    for number, clause in enumerate(clauses):
        place = int(rng.choice([place for place, sign in enumerate(clause) if sign.isalpha()]))
        clauses[number] = clause[:place] + str(rng.choice(letters)) + clause[place + 1 :]
    return Record(grammar["comma"].join(clauses), row.label)


def share_kept(grammar: Grammar) -> float:
    """Return the share of texts of six signs or a little more, in whole words, that the length filter keeps."""
    short = [said for label in LABELS for said in grammar[label] if len(said) >= 6]
    return float(np.mean(LengthFilter(3, None).keeps([Candidate(Record(text), 1.0) for text in short])))


def share_near(members: Sequence[Record], rows: Sequence[Record]) -> float:
    """Return the share of the rows that have a near-duplicate among the members."""
    of_words = [shingles_of(segment.words(row.text), SHINGLE) for row in members]
    watched = Watched(of_words, SIMILAR)
    return float(np.mean([bool(watched.find_near(shingles_of(segment.words(row.text), SHINGLE))) for row in rows]))


def learn(train: Sequence[Record], test: Sequence[Record], shuffled: bool, rng: np.random.Generator) -> float:
    """Return the accuracy of a classifier of words on other texts."""
    targets = [str(row.label) for row in train]
    learnt = rng.permutation(targets).tolist() if shuffled else targets
    texts, asked = ([row.text for row in side] for side in (train, test))
    found = tfidf_lr(texts, learnt, asked, [str(row.label) for row in test], LABELS, LinearSettings(range(3)))
    return found.scored.accuracy.value


if __name__ == "__main__":
    main()
