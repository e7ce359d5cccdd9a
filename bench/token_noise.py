"""Two design choices of private prediction: how logits are clipped, and that a token is drawn instead of noised.

    python -m bench.token_noise clipping --data <folder> --lm <folder>   # Amin et al. 2024, figure 3
    python -m bench.token_noise gaussian                                 # the same, appendix E

`clipping`: contexts of 64 rows of one label stand before the same public text. At each of its tokens their logits are
averaged, as they are and clipped, and the distance of the two distributions is the L1 distortion. `fixed` cuts every
logit to [-c, c]; `moved` is equation 1: the largest is moved to c first, and the cut is at -c. A logit's own zero is
arbitrary, so `fixed` hangs on where a model happens to put it.

`gaussian`: the standard deviation, on each probability of the averaged distribution, at which Gaussian noise has the
privacy of one drawn token, by three analyses: the classic one, the exact one of Balle and Wang 2018 (theorem 8), and
zero-concentrated privacy. The L2 sensitivity of an average of s distributions is taken as sqrt(2) / s.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from bench.real_data import TASKS, lines, natural, public_sentences
from palimpsest.models.lm import load_lm
from palimpsest.models.logits import logits_of
from palimpsest.prediction.mechanism import FixedClipping
from palimpsest.privacy.accounting import gdp_sigma
from palimpsest.progress import track

CLIPS = (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0)
CONTEXTS, TEXTS, MOST_TOKENS = 64, 4, 16
PROMPT = "A text:\n{text}\nAnother text of the same kind:\n"
SETTINGS = tuple(
    (clip, temperature, size) for clip, temperature in ((10.0, 2.0), (10.0, 1.5)) for size in (127, 255, 1023)
)
DELTA = 1e-6


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    clipping = commands.add_parser("clipping")
    clipping.add_argument("--data", type=Path, required=True)
    clipping.add_argument("--lm", type=Path, required=True)
    clipping.add_argument("--task", choices=TASKS, default="agnews")
    commands.add_parser("gaussian")
    args = parser.parse_args()
    print("\n".join(gaussian() if args.command == "gaussian" else distortions(args.data, args.lm, args.task)))


def distortions(data: Path, lm: Path, task: str) -> list[str]:
    """The table of L1 distortions: mean over public tokens, by clip."""
    found = np.concatenate([distortion(logits) for logits in private_logits(data, lm, task)], axis=1)  # (2, tokens, c)
    heads = [f"| {len(found[0])} tokens | {' | '.join(f'c = {clip:g}' for clip in CLIPS)} |", "|---" * 9 + "|"]
    rows = zip(("fixed interval", "moved, then cut"), found.mean(axis=1), strict=True)
    return heads + [f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |" for name, values in rows]


def private_logits(data: Path, lm: Path, task: str) -> list[torch.Tensor]:
    """Logits (contexts, tokens, vocabulary) before each token of each public text."""
    model, tokenizer = load_lm(lm)
    label = sorted(TASKS[task]["labels"])[0]
    rows = (row for row in lines(data / f"{task}_train.jsonl.gz") if natural(task, "train", row))
    prompts = [PROMPT.format(text=row["text"]) for row in rows if row["label"].lower() == label][:CONTEXTS]
    publics = [text for text, _ in zip(public_sentences(data, TASKS[task]), range(TEXTS), strict=False)]
    found = []
    for text in track(publics, name="texts", total=TEXTS, private=True):
        written = tokenizer.encode(text, add_special_tokens=False)[:MOST_TOKENS]
        found.append(torch.stack([behind(model, tokenizer.encode(prompt), written) for prompt in prompts]))
    return found


@torch.no_grad()
def behind(model: torch.nn.Module, prompt: Sequence[int], written: Sequence[int]) -> torch.Tensor:
    """Logits (tokens, vocabulary) before each written token behind one prompt."""
    hidden = model.base_model(input_ids=torch.tensor([[*prompt, *written[:-1]]])).last_hidden_state[0]
    return logits_of(model, hidden[len(prompt) - 1 :])


def distortion(logits: torch.Tensor) -> np.ndarray:
    """L1 distances, (ways, tokens, clips), of the averaged distribution from the unclipped one."""
    exact = logits.mean(dim=0).double().softmax(dim=-1)
    raised = logits - logits.amax(dim=-1, keepdim=True)
    ways = [[logits.clamp(-clip, clip).mean(dim=0), (raised + clip).clamp_min(-clip).mean(dim=0)] for clip in CLIPS]
    far = [[(way.double().softmax(dim=-1) - exact).abs().sum(dim=-1).numpy() for way in both] for both in ways]
    return np.array(far).transpose(1, 2, 0)


def gaussian() -> list[str]:
    """The table of equally private noise, on each probability."""
    heads = ["| c | temperature | s | epsilon of a token | classic | exact | zCDP |", "|---" * 7 + "|"]
    return heads + [equal_noise(*settings) for settings in SETTINGS]


def equal_noise(clip: float, temperature: float, size: int) -> str:
    """One line: drawing a token is 2 c / (s temperature)-DP, and its rho is the mechanism's."""
    mechanism, sensitivity = FixedClipping(clip, temperature, size), math.sqrt(2.0) / size
    epsilon = 2.0 * mechanism.sensitivity / temperature
    classic = sensitivity * math.sqrt(2.0 * math.log(1.25 / DELTA)) / epsilon
    exact = gdp_sigma(epsilon, DELTA, sensitivity=sensitivity)
    concentrated = sensitivity / math.sqrt(2.0 * mechanism.rho)
    return f"| {clip:g} | {temperature:g} | {size} | {epsilon:.4f} | {classic:.3f} | {exact:.3f} | {concentrated:.3f} |"


if __name__ == "__main__":
    main()
