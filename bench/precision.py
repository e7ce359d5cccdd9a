"""How much faster the embedded encoder reads texts in half precision, and how far its vectors then are.

    OMP_NUM_THREADS=1 python -m bench.precision FILE [--rows 384]

FILE has a text a line. Milliseconds are of processor time for each text, the median of three turns; both sides read the
same batches.

Feeds docs/performance.md. FILE is yours.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from palimpsest.devices import has_bfloat16
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.models.vectors import batch_by_length

_TURNS = 3


def read(encoder: Encoder, texts: Sequence[str], batch: int) -> tuple[np.ndarray, float]:
    """Vectors (texts, d), and the milliseconds of a text."""
    vectors = np.zeros((len(texts), encoder.dimension), dtype=np.float32)
    began = time.process_time()
    for places in batch_by_length(list(map(len, texts)), batch):
        vectors[places] = encoder.encode_batch([texts[place] for place in places])
    return vectors, 1e3 * (time.process_time() - began) / len(texts)


def main() -> None:
    """Print a line for texts that are read together, and one for texts alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=384)
    chosen = parser.parse_args()
    texts = chosen.file.read_text(encoding="utf-8").splitlines()[: chosen.rows]
    whole, half = (Encoder(resolve_encoder("embedded"), half=half) for half in (False, True))
    print(f"the processor computes in bfloat16: {has_bfloat16()}")
    for batch in (64, 1):
        turns = [(read(whole, texts, batch), read(half, texts, batch)) for _ in range(_TURNS)]
        (one, _), (other, _) = turns[0]
        first, second = (statistics.median(turn[side][1] for turn in turns) for side in (0, 1))
        cosines = (one * other).sum(axis=1)
        print(
            f"{batch} together: {first:.1f} ms, in half {second:.1f} ms, {first / second:.2f} times as fast; cosine at "
            f"least {cosines.min():.5f}, coordinates at most {np.abs(one - other).max():.4f} apart"
        )


if __name__ == "__main__":
    main()
