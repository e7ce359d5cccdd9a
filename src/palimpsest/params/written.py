"""The public file that an author writes: how many texts, and what that costs."""

import math
import os

from palimpsest.methods.evolve.authors import Base
from palimpsest.methods.evolve.instructed import expected_calls
from palimpsest.models.chat.settings import Endpoint
from palimpsest.models.sources import weights_of
from palimpsest.params.schema import Params
from palimpsest.params.sources import name_writer, writer_of

_A_SECOND = 40.0  # tokens that an endpoint writes for one request
_OPERATIONS = 2e10  # a second that a core does, of two for each weight and token


def counts_of(params: Params) -> dict[str, int]:
    """Return how many texts of each label are asked for, or of the one label "" where there are none."""
    assert params.dataset.written is not None
    labels = tuple(params.dataset.labels) or ("",)
    return dict.fromkeys(labels, math.ceil(params.dataset.written.texts / len(labels)))


def describe_writing(params: Params) -> str:
    """Return a sentence about what an author will write and what that costs: calls, tokens, minutes and money."""
    author, texts = writer_of(params), sum(counts_of(params).values())
    told = f"{name_writer(params)} writes the public file, {texts:,} texts, from public words alone"
    if isinstance(author, Base):
        tokens = texts * author.max_tokens
        return f"{told}: at most {tokens:,} tokens{_tell_minutes(_local_minutes(params.models.lm, tokens))}."
    calls = expected_calls(author, params.dataset.labels, texts, 0)
    minutes = _local_minutes(author.model, calls.read + calls.written)
    cost = ""
    if isinstance(author, Endpoint):
        slowest = calls.requests / (author.requests_a_minute or math.inf)
        minutes = max(slowest, calls.written / author.concurrency / _A_SECOND / 60.0)
        cost = f", and about {money:.2f} in money" if (money := calls.cost(author.price)) else ""
    tokens = calls.read + calls.written
    return f"{told}: {calls.requests:,} calls, about {tokens:,} tokens{_tell_minutes(minutes)}{cost}."


def _local_minutes(model: str, tokens: int) -> float:
    """Return how long a model on this machine takes without an accelerator; 0 where it is not here yet."""
    return 2.0 * weights_of(model) * tokens / (_OPERATIONS * (os.cpu_count() or 1)) / 60.0


def _tell_minutes(minutes: float) -> str:
    return f", about {math.ceil(minutes)} minutes" if minutes else ""
