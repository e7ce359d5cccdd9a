"""How long public texts are: the limits that `init` sets by it, and what `plan` says is cut. No private row is read."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.errors import DataError, ModelError
from palimpsest.models.settings import PROMPT
from palimpsest.models.sources import count_positions, find_cut
from palimpsest.params.resolve import to_plain
from palimpsest.params.schema import USUAL_LENGTH, Params
from palimpsest.records.read import ColumnNames, iter_rows
from palimpsest.records.segment import count_parts
from palimpsest.settings import LONGEST
from palimpsest.work.decisions import DataSource
from stages.vouching import named_sources, place_of

_MOST = 4000  # public texts that are looked at; at least half as many of a file that has more
_SPREAD, _PLACES = 0x9E3779B1, 1 << 32  # by the golden ratio: even over a file, and in step with no order of its rows
_WHOLE = 10**9  # characters: no text is cut before it is measured
_KEPT = 95  # per cent of the public texts that the limits of `init` keep whole
_TOKENS_A_WORD = 4 / 3
_USUAL_TOKENS = 64
_TELLS = 0.05  # share of texts from which a limit is worth a line
_TOKEN_LIMITS = ("max_tokens", "text_tokens")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths of public texts: characters, and tokens as estimated from words; each of shape (texts,)."""

    characters: np.ndarray
    tokens: np.ndarray


def _measure_lengths(path: Path | str, columns: ColumnNames) -> Lengths | None:
    """Measure texts from all over a public file; None where they cannot be read, which others will say."""
    try:
        rows = iter_rows(path, columns, _WHOLE, bad=lambda _: False)
        texts = _spread_evenly(row.text for row in rows if row.text)
    except DataError:
        return None
    if not texts:
        return None
    words = np.array([count_parts(text) for text in texts])
    return Lengths(np.array([len(text) for text in texts]), np.ceil(_TOKENS_A_WORD * words))


def _spread_evenly(texts: Iterable[str]) -> list[str]:
    """Return all texts of a short file, and 2,000 to 4,000 of a longer one: a sorted file has long ones at one end."""
    kept, below = list[tuple[int, str]](), _PLACES
    for number, text in enumerate(texts):
        place = number * _SPREAD % _PLACES
        if place < below:
            kept.append((place, text))
        if len(kept) > _MOST:
            below //= 2
            kept = [one for one in kept if one[0] < below]
    return [text for _, text in kept]


def fit_lengths(source: DataSource, columns: ColumnNames) -> DataSource:
    """Return the source with limits that keep 95 % of its public texts whole, unless it has limits of its own.

    No more tokens than its language model has room for.
    """
    found = None if source.public is None or source.task == "json" else _measure_lengths(source.public, columns)
    if found is None:
        return source
    characters, tokens = (np.percentile(lengths, _KEPT) for lengths in (found.characters, found.tokens))
    length = source.max_length or max(USUAL_LENGTH, _round_up(characters))
    tokens *= min(1.0, length / characters)
    long = source.text_tokens or (min(_round_up(tokens), find_room(source.lm)) if tokens > _USUAL_TOKENS else None)
    return replace(source, max_length=length, text_tokens=long)


def find_room(lm: str) -> int:
    """Return how many tokens of a text a language model writes or reads at most, beside a prompt in its positions."""
    folder = Path(lm)
    room = count_positions(folder) - PROMPT if folder.is_dir() else math.inf
    return int(min(LONGEST, max(_USUAL_TOKENS, room)))


def _round_up(length: float) -> int:
    """Round up to two digits.

    >>> _round_up(1234), _round_up(99), _round_up(100.5)
    (1300, 99, 110)
    """
    unit = 10 ** max(0, math.floor(math.log10(length)) - 1)
    return math.ceil(length / unit) * unit


def describe_cuts(params: Params, workspace: Path) -> Iterator[str]:
    """Yield a sentence or two for each limit that cuts more than a twentieth of the public texts."""
    data = params.dataset
    columns = ColumnNames(data.text, None, keys=params.schema_of_data.keys, plain=True)
    found = _measure_lengths(workspace / data.public, columns)
    if found is None:
        return
    limits = [("dataset.max_length", data.max_length, "characters", found.characters)]
    limits += [(key, most, "tokens, about", found.tokens) for key, most in _token_limits(_running(params))]
    for key, most, unit, lengths in limits:
        if (cut := float(np.mean(lengths > most))) > _TELLS:
            half, nearly_all = (np.percentile(lengths, share) for share in (50, _KEPT))
            yield (
                f"{key} is {most} {unit}: it cuts {cut:.0%} of the public texts. Half have up to {half:.0f}, "
                f"{_KEPT}% up to {nearly_all:.0f}."
            )
    yield from _describe_windows(params, workspace, found)
    yield from _describe_positions(params, workspace)


def _describe_windows(params: Params, workspace: Path, found: Lengths) -> Iterator[str]:
    """Say where the encoder cuts long texts, which it reads in windows else."""
    source = named_sources(params).get("models.encoder")
    if source is None or not (source.on_disk and source.used):
        return
    folder = place_of(source, workspace)
    with suppress(ModelError):  # what cannot be loaded others say
        most = find_cut(folder) if folder is not None and folder.is_dir() else None
        if most is not None and (cut := float(np.mean(found.tokens > most))) > _TELLS:
            yield (
                "The tokenizer of models.encoder does not say where in a text its tokens stand, so long texts are not "
                f"read in windows: {cut:.0%} of the public texts are cut, after {most} tokens, about. Name an encoder "
                "with a tokenizer.json, or know that it reads the beginnings alone."
            )


def _describe_positions(params: Params, workspace: Path) -> Iterator[str]:
    """Yield a sentence for each limit that leaves a prompt no room in the public language model."""
    source, positions = named_sources(params).get("models.lm"), float(params.models.embedded_lm.context)
    if source is not None:
        folder = place_of(source, workspace) if source.used else None
        positions = math.inf if folder is None else count_positions(folder)
    for key, most in _token_limits(_running(params)):
        if most >= positions and not key.startswith("utility."):
            yield (
                f"{key} is {most} tokens, and models.lm has {positions:.0f} positions, which hold a prompt too. "
                "Lower it, or name a model with a longer context."
            )
    for name, author in _running(params)["authors"].items():
        shown, most = _count_shown(author), author.get("max_tokens", 0)
        if shown and (1 + shown) * most > positions:
            yield (
                f"authors.{name} shows {shown} texts of up to {most} tokens before one that it writes, and models.lm "
                f"has {positions:.0f} positions: it shows fewer, or cuts them. Lower its max_tokens, or name a model "
                "with a longer context."
            )


def _count_shown(author: Mapping[str, Any]) -> int:
    """Return how many texts a public language model is shown before it writes a new one, or another in its place."""
    if author["kind"] != "base":
        return 0
    return max(author["examples"], (author["vary"] in ("paraphrase", "blanks")) + 2 * author["shots"])


def longest_text(params: Params) -> int:
    """Return the most tokens that a text has which the public language model, or a copy of it, writes or reads."""
    return max((most for key, most in _token_limits(_running(params)) if not key.startswith("utility.")), default=0)


def _running(params: Params) -> dict[str, Any]:
    """Return the settings of what is taught, writes or judges in a run."""
    keys = ("lms", "discriminators", "variants", "taught", "authors", "public_lm")
    settings = {key: to_plain(getattr(params, key)) for key in keys}
    used = {"finetune" if name == "finetuned" else name for name in params.utility.evaluators}
    return settings | {"utility": params.utility.model_dump(include=used)}


def _token_limits(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, int]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _token_limits(value, f"{above}{key}.")
        elif key in _TOKEN_LIMITS and isinstance(value, int):
            yield f"{above}{key}", value
