"""What is written behind a beginning is what the model itself would write there, whatever is written beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.errors import ModelError
from palimpsest.models.lm import load_lm, pretrain_lm
from palimpsest.models.settings import EmbeddedLm
from palimpsest.models.writing import Gap, Start, Writer, draw
from palimpsest.records.conformity import conforms
from palimpsest.records.structured import members_of

TEXTS = [f"The {thing} {verb} in the {place}." for thing in ("lamp", "kettle", "radio") for verb in ("hums", "leaks")
         for place in ("hall", "kitchen", "garden", "office")]  # fmt: skip
SETTINGS = EmbeddedLm(
    layers=1, width=32, heads=2, vocabulary=300, context=40, epochs=20, batch=8, learning_rate=0.01,
    weight_decay=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of public sentences."""
    folder = tmp_path_factory.mktemp("writing") / "small"
    pretrain_lm(TEXTS, TEXTS[:2], SETTINGS, 1, folder)
    return folder


@pytest.fixture(scope="module")
def small(folder: Path):
    return load_lm(folder)


def coins(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).random(size)


def starts(tokenizer, count: int = 9) -> list[Start]:
    """Beginnings of unequal length, which may end at unequal times."""
    found = []
    for number in range(count):
        begun = tokenizer.encode(TEXTS[2 * number][: 3 * number])
        found.append(Start([0, *begun], 1 + number % 3, 4 + number, coins(number, 9 + number % 5)))
    return found


@torch.no_grad()
def log_probs(model, tokens: Sequence[int], endless: bool, temperature: float = 1.0, haste: float = 0.0, closing=()):
    """Of the token behind these, read whole: shape (vocabulary,)."""
    logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]
    logits[list(closing)] += haste * temperature
    logits = logits / temperature
    logits[[1, 2] + [0] * endless] = -torch.inf
    return logits.log_softmax(dim=-1)


def written_alone(model, tokenizer, start: Start, temperature: float, top_p: float) -> list[int]:
    ends = [token for token in range(300) if tokenizer.decode([token]).endswith((".", "!", "?"))]
    text: list[int] = []
    for coin in start.coins:
        late = max(0, len(text) - start.due)
        found = log_probs(
            model,
            [*start.tokens, *text],
            len(text) < start.least,
            temperature,
            0.5 * late,
            [*ends, tokenizer.eos_token_id],
        )
        token = int(draw(found[None], top_p, torch.tensor([coin])))
        if token == tokenizer.eos_token_id:
            break
        text.append(token)
        if len(text) >= start.due and token in ends:
            break
    return text


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 0.95), (3.0, 1.0), (0.7, 0.5)])
def test_each_text_is_the_one_that_the_model_writes_when_it_reads_it_whole(small, temperature, top_p) -> None:
    writer, asked = Writer(*small, temperature, top_p), starts(small[1])
    found = writer.go_on(asked)
    assert found == [written_alone(*small, start, temperature, top_p) for start in asked]
    assert len({len(text) for text in found}) > 2
    assert [text for start in asked for text in writer.go_on([start])] == found
    assert writer.go_on(asked[::-1]) == found[::-1]


def test_a_text_ends_in_time_and_holds_no_control_token(small) -> None:
    model, tokenizer = small
    asked = [Start([0], 3, 6, coins(number, 12)) for number in range(300)]
    found = Writer(model, tokenizer, 30.0, 1.0).go_on(asked)  # all tokens are nearly as likely
    assert {len(text) for text in found} <= set(range(3, 13))
    assert len({len(text) for text in found}) > 4
    assert not {0, 1, 2} & {token for text in found for token in text}
    ends = {token for token in range(300) if tokenizer.decode([token]).endswith((".", "!", "?"))}
    assert any(token in ends for text in found for token in text[:5])
    assert not any(token in ends for text in found for token in text[5:-1])


def test_what_is_due_ends_sooner_than_what_is_not(small) -> None:
    writer = Writer(*small, 30.0, 1.0)
    hurried, slow = (writer.go_on([Start([0], 1, due, coins(number, 30)) for number in range(80)]) for due in (2, 30))
    assert np.mean([len(text) for text in hurried]) < 0.8 * np.mean([len(text) for text in slow])


def test_columns_that_are_no_token_are_never_written(folder: Path) -> None:
    model, tokenizer = load_lm(folder)
    model.resize_token_embeddings(600, mean_resizing=False)
    found = Writer(model, tokenizer, 50.0, 1.0).go_on([Start([0], 20, 20, coins(3, 20)) for _ in range(8)])
    assert max(token for text in found for token in text) < len(tokenizer) < 600


def gaps(tokenizer, count: int = 6) -> list[Gap]:
    found = []
    for number in range(count):
        before, after = (
            tokenizer.encode(TEXTS[number][: 4 + 2 * number]),
            tokenizer.encode(TEXTS[-number - 1][-8 + number :]),
        )
        lengths = [1 + (number + each) % 4 for each in range(3)]
        found.append(Gap([0, *before], after[: 1 + number], [coins(10 * number + n, n) for n in lengths]))
    return found


def filled_alone(model, gap: Gap, temperature: float) -> list[int]:
    proposals, fits = [], []
    for flips in gap.coins:
        text: list[int] = []
        for coin in flips:
            found = log_probs(model, [*gap.before, *text], True, temperature)
            text.append(int(draw(found[None], 0.9, torch.tensor([coin]))))
        whole, first = [*gap.before, *text, *gap.after], len(gap.before) + len(text)
        with torch.no_grad():
            logits = model(torch.tensor([whole]), use_cache=False).logits[0].log_softmax(dim=-1)
        fits.append(sum(float(logits[place - 1, whole[place]]) for place in range(first, len(whole))))
        proposals.append(text)
    return proposals[int(np.argmax(fits))]


def test_a_gap_gets_the_proposal_that_what_follows_is_likeliest_behind(small) -> None:
    model, tokenizer = small
    writer, asked = Writer(model, tokenizer, 2.0, 0.9), gaps(tokenizer)
    found = writer.fill(asked)
    assert found == [filled_alone(model, gap, 2.0) for gap in asked]
    assert [text for gap in asked for text in writer.fill([gap])] == found
    firsts = [writer.fill([Gap(gap.before, gap.after, gap.coins[:1])])[0] for gap in asked]
    assert firsts != found
    assert [len(text) for text in firsts] == [len(gap.coins[0]) for gap in asked]


def test_nothing_to_write_is_nothing_written(small) -> None:
    writer = Writer(*small, 1.0, 1.0)
    assert writer.go_on([]) == writer.fill([]) == []


def test_what_does_not_fit_the_model_is_an_error(small) -> None:
    writer = Writer(*small, 1.0, 0.9)
    assert writer.context == 40
    assert len(writer.go_on([Start([0] * 20, 20, 20, coins(1, 20))])[0]) == 20
    assert len(writer.fill([Gap([0] * 20, [9] * 10, [coins(1, 10)])])[0]) == 10
    with pytest.raises(ModelError, match="41 positions; the model has 40"):
        writer.go_on([Start([0] * 21, 20, 20, coins(1, 20)), Start([0], 1, 1, coins(1, 2))])
    with pytest.raises(ModelError, match="41 positions"):
        writer.fill([Gap([0] * 20, [9] * 11, [coins(1, 10)])])


def test_a_text_that_ends_at_the_models_last_place_stops_none_beside_it(small) -> None:
    writer = Writer(*small, 1.0, 0.9)
    asked = [Start([0] * 39, 1, 1, coins(9, 1)), *(Start([0], 20, 20, coins(n, 20)) for n in range(9))]
    found = writer.go_on(asked)
    assert [text for start in asked for text in writer.go_on([start])] == found


@pytest.mark.parametrize("repeats", [1, 700])  # 2,800 columns are more than the fast way sorts
@pytest.mark.parametrize(("top_p", "wanted"), [(1.0, [0.1, 0.5, 0.25, 0.15]), (0.7, [0, 0.5, 0.25, 0]),
                                               (0.45, [0, 1, 0, 0]), (0.85, [0, 0.5, 0.25, 0.15])])  # fmt: skip
def test_a_draw_is_in_proportion_from_the_smallest_set(repeats: int, top_p: float, wanted: list[float]) -> None:
    grid = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    probs = torch.tensor([0.1, 0.5, 0.25, 0.15]).double().repeat_interleave(repeats) / repeats
    drawn = draw(probs.log().expand(10_000, -1), top_p, grid) // repeats
    counts, expected = torch.bincount(drawn, minlength=4) / 10_000, torch.tensor(wanted).double()
    if repeats == 1:
        torch.testing.assert_close(counts.double(), expected / expected.sum(), atol=2e-4, rtol=0)
    else:  # equal tokens can be cut between
        cut = torch.tensor({1.0: [0.1, 0.5, 0.25, 0.15], 0.7: [0, 0.5, 0.2, 0], 0.45: [0, 0.45, 0, 0],
                            0.85: [0, 0.5, 0.25, 0.1]}[top_p]).double()  # fmt: skip
        torch.testing.assert_close(counts.double(), cut / cut.sum(), atol=2e-3, rtol=0)


def test_equally_likely_tokens_of_a_large_set_are_drawn_alike() -> None:
    grid = (torch.arange(6000, dtype=torch.float64) + 0.5) / 6000
    counts = torch.bincount(draw(torch.full((6000, 1024), 1 / 1024).log(), 0.5, grid), minlength=1024)
    assert ((counts[:512] - 6000 / 512).abs() < 2).all()
    assert not counts[512:].any()


def test_a_draw_never_reaches_what_has_no_probability() -> None:
    log_probs = torch.tensor([[0.0, 0.3, 0.7, 0.0]]).log()
    for top_p in (1.0, 0.99):
        found = {int(draw(log_probs, top_p, torch.tensor([coin], dtype=torch.float64))) for coin in (0.0, 1 - 1e-16)}
        assert found == {1, 2}


def test_a_row_is_drawn_the_same_beside_flatter_ones() -> None:
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * torch.tensor(
        [[0.1], [1], [3], [5], [0], [9]]
    )
    rows, flips = logits.log_softmax(dim=-1), torch.from_numpy(coins(1, 6))
    together = draw(rows, 0.95, flips)
    assert together.tolist() == [int(draw(rows[[row]], 0.95, flips[[row]])) for row in range(6)]


def test_a_new_line_ends_a_text_where_lines_are_texts(small) -> None:
    model, tokenizer = small
    line = tokenizer.encode("\n")
    begun = [Start([0], 4, 20, coins(number, 24)) for number in range(40)]
    free, ended = (Writer(model, tokenizer, 20.0, 1.0, line=ends).go_on(begun) for ends in (False, True))
    assert any(line[0] in text for text in free)
    assert not any(line[0] in text for text in ended)
    assert min(map(len, ended)) >= 4


def test_a_text_by_a_schema_is_a_record_whole(small) -> None:
    """Behind a beginning of its own, too; one that begins no record is gone on with as without a schema."""
    model, tokenizer = small
    schema = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
    writer = Writer(model, tokenizer, 2.0, 1.0, json_schema=schema)
    begun = tokenizer.encode('{"by": "The lamp')
    new = [Start([0], 3, 4, coins(seed, 24)) for seed in range(6)]
    kept = [Start([0, *begun], 3, 4, coins(seed, 16), len(begun)) for seed in range(6)]
    plain = tokenizer.encode("The lamp")
    other = Start([0, *plain], 1, 4, coins(1, 9), len(plain))
    found = writer.go_on([*new, *kept, other])
    texts = [tokenizer.decode(tokens) for tokens in (*found[:6], *([*begun, *tokens] for tokens in found[6:12]))]
    assert all(map(conforms(schema), map(members_of, texts)))
    assert len(set(texts)) > 6
    assert found[-1] == Writer(model, tokenizer, 2.0, 1.0).go_on([other])[0]
