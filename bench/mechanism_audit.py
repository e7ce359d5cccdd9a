"""How often the audits of the mechanisms refute correct code and broken twins.

    python -m bench.mechanism_audit --trials 5000 --seeds 20

A row is a family with one fault, or none; `refuted` counts seeds, `bound` is the median lower bound on epsilon at delta
1e-5, and `CPU s` the median time of one audit on one thread. Batches and noise come from a fresh key for each run, and
so do the samplers of selections; "seeds" are repetitions.

Feeds docs/results/audit.md. It needs no folder.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from palimpsest.prediction.mechanism import draw
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.queries import gumbel_top_k
from palimpsest.progress import track
from tools import mechanism_audit as mechanism
from tools.mechanism_audit import MechanismAudit, Sizing

FACTORS = (1.1, 1.25, 1.5)


class Repeating(NoiseSource):
    """Adds the same noise at every step."""

    def __init__(self) -> None:
        super().__init__()
        self._seed = int(self.integers(1, 2**31)[0])

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        NoiseSource(self._seed).add_gaussian(tensor, std)


def planned(**changes: float) -> mechanism.Train:
    """Training by another plan than the one that is claimed."""
    return lambda query, rows, noise: replace(query, plan=replace(query.plan, **changes)).run(rows, noise)


def quieter(factor: float) -> Callable:
    """A query with less noise than it claims."""
    return lambda query, rows, noise: replace(query, sigma=query.sigma / factor).run(rows, noise)


def quieter_vote(factor: float) -> Callable:
    """A vote with less noise than it claims."""
    return lambda query, rows, noise: replace(
        query, ballot=replace(query.ballot, sigma=query.ballot.sigma / factor)
    ).run(rows, noise)


def over_the_real_number(clipping, private, public, noise) -> int:
    """Divides by the number of contexts that are there."""
    total = clipping.contributions(private, public).sum(dim=0)
    return draw(replace(clipping, batch_size=len(private)).scores(total, public), noise)


def without_offset(domain: LimitedDomain, counts) -> list[int]:
    """The bottom stands where the next bin does."""
    leading, scores = domain.score_bins(counts)
    order = gumbel_top_k([*scores[:-1], scores[-1] - domain.offset], len(scores), domain.scale)
    return [leading[place] for place in order[: order.index(len(leading))]][: domain.picks]


def cases(sizing: Sizing) -> dict[tuple[str, str], Callable[[], MechanismAudit]]:
    """(family, fault) -> one audit."""
    plan, one = mechanism.TRAINING, NoiseSource
    train, histogram = mechanism.audit_training, mechanism.audit_histogram
    found: dict[tuple[str, str], Callable[[], MechanismAudit]] = {
        ("training", ""): lambda: train(sizing, one()),
        ("training", "no noise"): lambda: train(sizing, one(), planned(noise_multiplier=0.0)),
        ("training", "noise / batch size"): lambda: train(
            sizing, one(), planned(noise_multiplier=plan.noise_multiplier / (plan.rate * sizing.trials))
        ),
        ("training", "the same noise at every step"): lambda: train(
            sizing, one(), lambda query, rows, noise: query.run(rows, Repeating())
        ),
        ("training", "no clipping"): lambda: train(
            sizing,
            one(),
            planned(clipping_norm=10 * plan.clipping_norm, noise_multiplier=plan.noise_multiplier / 10),
        ),
        ("label histogram", ""): lambda: histogram(sizing, one()),
        ("votes", ""): lambda: mechanism.audit_votes(sizing, one()),
        ("class means", ""): lambda: mechanism.audit_means(sizing, one()),
        ("statements", ""): lambda: mechanism.audit_statements(sizing, one()),
        ("Gumbel top k", ""): lambda: mechanism.audit_gumbel_top_k(sizing),
        ("limited domain", ""): lambda: mechanism.audit_limited_domain(sizing),
        ("limited domain", "no offset"): lambda: mechanism.audit_limited_domain(sizing, without_offset),
        ("token", ""): lambda: mechanism.audit_token(sizing, one()),
        ("token", "/ number of contexts"): lambda: mechanism.audit_token(sizing, one(), over_the_real_number),
    }
    for factor in FACTORS:
        found |= weaker_cases(sizing, factor)
    return dict(sorted(found.items(), key=lambda item: item[0]))


def weaker_cases(sizing: Sizing, factor: float) -> dict[tuple[str, str], Callable[[], MechanismAudit]]:
    """Every family with noise that is too small by a factor."""
    fault, one = f"noise / {factor:g}", NoiseSource
    multiplier = mechanism.TRAINING.noise_multiplier / factor
    return {
        ("training", fault): lambda: mechanism.audit_training(sizing, one(), planned(noise_multiplier=multiplier)),
        ("label histogram", fault): lambda: mechanism.audit_histogram(sizing, one(), quieter(factor)),
        ("votes", fault): lambda: mechanism.audit_votes(sizing, one(), quieter_vote(factor)),
        ("class means", fault): lambda: mechanism.audit_means(sizing, one(), quieter(factor)),
        ("statements", fault): lambda: mechanism.audit_statements(sizing, one(), quieter(factor)),
        ("Gumbel top k", fault): lambda: mechanism.audit_gumbel_top_k(
            sizing, lambda scores, k, scale: gumbel_top_k(scores, k, scale / factor)
        ),
        ("limited domain", fault): lambda: mechanism.audit_limited_domain(
            sizing, lambda domain, counts: replace(domain, scale=domain.scale / factor).pick(counts)
        ),
        ("token", fault): lambda: mechanism.audit_token(
            sizing,
            one(),
            lambda clipping, *rest: mechanism.next_token(
                replace(clipping, temperature=clipping.temperature / factor), *rest
            ),
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="the families whose name begins so")
    options = parser.parse_args()
    chosen = {
        key: audit
        for key, audit in cases(Sizing(options.trials, 1e-3, 1e-5)).items()
        if key[0].startswith(options.only)
    }
    print("| family | fault | refuted | bound | largest bound | CPU s |")
    print("|---|---|---|---|---|---|")
    for (family, fault), audit in track(
        chosen.items(), name="mechanisms", total=len(chosen), private=False, unit="row"
    ):
        show(family, fault, audit, options.seeds)


def show(family: str, fault: str, audit: Callable[[], MechanismAudit], seeds: int) -> None:
    """Print one line."""
    audits, seconds = [], []
    for _ in range(seeds):
        start = time.process_time()
        audits.append(audit())
        seconds.append(time.process_time() - start)
    refuted = sum(one.refuted for one in audits)
    bound, most = statistics.median(one.epsilon for one in audits), audits[0].epsilon_max
    time_taken = statistics.median(seconds)
    print(
        f"| {family} | {fault or '-'} | {refuted}/{seeds} | {bound:.2f} | {most:.2f} | {time_taken:.2f} |", flush=True
    )


if __name__ == "__main__":
    main()
