"""Measures how far clipping the public language model's logits moves the average of private contexts."""

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.devices import exact_device
from palimpsest.models.attention import logits_of
from palimpsest.models.lm import load_lm
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.workspace import BASE_LM
from palimpsest_lab.audits.clipping import ClippingAudit
from stages.audited import conclude_on_error, metric_of_subject, records_of, save
from stages.common import start
from stages.public import heldout_texts

_PROMPT = "A text:\n{text}\nAnother text of the same kind:\n"
_CONTEXTS, _TEXTS = 64, 4
_MOST_SHOWN, _MOST_WRITTEN = 64, 16  # tokens of a private text, and of a public one


@conclude_on_error(metric_of_subject("clipping"))
def run(name: str) -> None:
    """models/base, private training rows of the first label, public texts -> clipping.json beside the rows' metrics."""
    shown = [row.text for row in select_one_label(load())][:_CONTEXTS]
    model, tokenizer = load_lm(BASE_LM)
    model.to(exact_device())  # type: ignore[arg-type]
    save(name, "clipping", ClippingAudit.of(logits(model, tokenizer, shown, heldout_texts()[:_TEXTS])).to_json(name))


def select_one_label(params: Params) -> list[Record]:
    """Return rows of the first public label; all of them where there are no labels, or no row has that one."""
    rows, label = records_of("train"), next(iter(params.dataset.labels), None)
    return [row for row in rows if row.label == label] or rows


def logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, shown: Sequence[str], texts: Sequence[str]
) -> Iterator[torch.Tensor]:
    """Yield each public text's logits (contexts, tokens, vocabulary) before its tokens, behind each private one."""
    prompts = [tokenizer.encode(_PROMPT.format(text=cut_text(tokenizer, text, _MOST_SHOWN))) for text in shown]
    written = [tokenizer.encode(text, add_special_tokens=False)[:_MOST_WRITTEN] for text in texts]
    rows: list[torch.Tensor] = []
    pairs, total = product(written, prompts), len(written) * len(prompts)
    for tokens, prompt in track(pairs, name="prompts", total=total, private=True):
        rows.append(logits_behind(model, prompt, tokens))
        if len(rows) == len(prompts):
            yield torch.stack(rows)
            rows = []


def cut_text(tokenizer: PreTrainedTokenizerBase, text: str, most: int) -> str:
    """Return the text's first tokens, as text."""
    return str(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)[:most]))


@torch.no_grad()
def logits_behind(model: PreTrainedModel, prompt: Sequence[int], written: Sequence[int]) -> torch.Tensor:
    """Return logits (tokens, vocabulary) before each written token behind one prompt."""
    read = torch.tensor([[*prompt, *written[:-1]]], device=model.device)
    hidden = model.base_model(input_ids=read).last_hidden_state[0]
    return logits_of(model, hidden[len(prompt) - 1 :])


if __name__ == "__main__":
    start(run)
