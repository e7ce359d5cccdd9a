"""Cached, batched answers equal plain forward passes; draws, fits, calibration and the verdict are what they claim."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from palimpsest.audit.statistics import Bootstrap
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.models.tokens import train_tokenizer
from palimpsest.params.load import parse
from palimpsest.records.record import Record
from palimpsest_lab.audits import incontext, incontext_model
from palimpsest_lab.audits.incontext import (
    InContextAnswers,
    audit_in_context,
    chosen_items,
    correct_answers,
    draw_rows,
    helps,
    summarise_answers,
)
from palimpsest_lab.audits.incontext_model import (
    FIRST_TOKENS,
    AnswerWriter,
    Chooser,
    TokenPrompts,
    answer_text,
    content_free_bias,
    has_same_wording,
    local_judge,
    read,
    read_items,
    score_answers,
    write_tokens,
)
from palimpsest_lab.audits.incontext_settings import CONTENT_FREE, InContext
from palimpsest_lab.stages import incontext_eval
from tests.settings_file import demo

CONTEXT = 256
LABELS = ("praise", "no", "a long complaint", "not so")
WORDS = ["the", "lamp", "hums", "and", "glows", "but", "it", "never", "breaks", "so", "I", "like", "keep", "on"]
BOOTSTRAP = Bootstrap(resamples=300, seed=0)
SETTINGS = {
    "shots": (0, 2, 5), "draws": 2, "items": 12, "batch": 5, "demonstration_tokens": 9, "item_tokens": 12,
    "instruction": "Sort the texts.\n\n", "item": "Text: {text}\nAnswer:", "answer": " {label}\n", "verbalisers": None,
    "answer_tokens": 6,
}  # fmt: skip


def settings(**changes) -> InContext:
    return InContext(**{**SETTINGS, **changes})


def texts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(count)]


def records(count, seed=0, labels=LABELS):
    drawn = np.random.default_rng(seed + 100).integers(len(labels), size=count)
    return [Record(text, labels[index]) for text, index in zip(texts(count, seed), drawn, strict=True)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([f"Text: {text}\nAnswer: no\n" for text in texts(30)], 310, CONTEXT)


def gpt2(vocabulary):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def llama(vocabulary):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=0, pad_token_id=None,
        )
    )  # fmt: skip


def opt(vocabulary):
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=vocabulary, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=CONTEXT, dropout=0.0, pad_token_id=1, bos_token_id=0,
            eos_token_id=0,
        )
    )  # fmt: skip


def gemma3(vocabulary):
    """Every other layer sees a window that is shorter than a prompt."""
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=CONTEXT, sliding_window=9,
            layer_types=["sliding_attention", "full_attention"], bos_token_id=0, eos_token_id=0, pad_token_id=None,
        )
    )  # fmt: skip


def mistral(vocabulary):
    """All of its layers do."""
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=CONTEXT, sliding_window=9, bos_token_id=0, eos_token_id=0,
            pad_token_id=None,
        )
    )  # fmt: skip


MODELS = {"gpt2": gpt2, "llama": llama, "opt": opt, "gemma3": gemma3, "mistral": mistral}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tokenizer):
    """Weights far from 0, so that every token, place and neighbour matters."""
    torch.manual_seed(1)
    made = MODELS[request.param](len(tokenizer)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return made


@pytest.fixture(scope="module")
def random_gpt2(tokenizer):
    torch.manual_seed(2)
    return gpt2(len(tokenizer)).eval()


def beginning(prompts, shots):
    shown = records(shots, seed=3)
    answers = prompts.answers([record.label for record in shown])
    return [*prompts.start, *chain.from_iterable(prompts.demonstrations([record.text for record in shown], answers))]


@torch.no_grad()
def plainly(model, tokens, answer):
    """Log-probability of one answer behind one prompt, from one full pass."""
    logits = model(torch.tensor([[*tokens, *answer]])).logits[0].log_softmax(dim=-1)
    return sum(float(logits[len(tokens) - 1 + place, token]) for place, token in enumerate(answer))


@torch.no_grad()
def written_plainly(model, tokens, first, most):
    rows = [*tokens, first]
    while len(rows) < len(tokens) + most:
        rows.append(int(model(torch.tensor([rows])).logits[0, -1].argmax()))
    return rows[len(tokens) :]


# The cache.


@pytest.mark.parametrize("shots", [0, 3])
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_cached_scores_are_those_of_plain_passes(model, tokenizer, shots, batch):
    prompts = TokenPrompts(tokenizer, settings())
    start, items = beginning(prompts, shots), prompts.items(["", *texts(6, seed=5)], 12)
    answers = prompts.answers(LABELS)
    assert len({len(answer) for answer in answers}) > 1
    assert len({len(item) for item in items}) > 3
    past = read(model, start)
    batches = [items[place : place + batch] for place in range(0, len(items), batch)]
    found = torch.cat(
        [score_answers(model, read_items(model, past, part, prompts.ids.pad), answers) for part in batches]
    )
    expected = [[plainly(model, [*start, *item], answer) for answer in answers] for item in items]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-4)
    assert past[0][0].shape[2] == len(start)  # the beginning is as it was


def test_answers_of_one_token_need_no_further_pass(model, tokenizer):
    prompts = TokenPrompts(tokenizer, settings())
    items = prompts.items(texts(3), 12)
    reading = read_items(model, read(model, prompts.start), items, prompts.ids.pad)
    width = reading.cache.get_seq_length()
    found = score_answers(model, reading, [[7], [9]])
    assert reading.cache.get_seq_length() == width
    expected = [[plainly(model, [*prompts.start, *item], [token]) for token in (7, 9)] for item in items]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-4)


@pytest.mark.parametrize("batch", [1, 4])
def test_cached_answers_are_those_of_plain_passes(model, tokenizer, batch):
    prompts = TokenPrompts(tokenizer, settings(batch=batch))
    start, items = beginning(prompts, 2), prompts.items(texts(8, seed=8), 12)
    past, found = read(model, start), []
    for place in range(0, len(items), batch):
        reading = read_items(model, past, items[place : place + batch], prompts.ids.pad)
        found += write_tokens(model, reading, reading.log_probs.argmax(dim=1), prompts, 6)
    rows = [written_plainly(model, [*start, *item], _first(model, [*start, *item]), 6) for item in items]
    assert found == [row[: len(own)] for row, own in zip(rows, found, strict=True)]
    assert sum(map(len, found)) > 3 * len(found)


def test_a_long_beginning_is_copied_for_fewer_items(random_gpt2, tokenizer, monkeypatch):
    judge = Chooser(random_gpt2, TokenPrompts(tokenizer, settings(batch=5)), LABELS)
    shown, asked = records(4), records(11, seed=1)
    sizes: list[int] = []

    def counted(model, past, items, pad):
        sizes.append(len(items))
        return read_items(model, past, items, pad)

    monkeypatch.setattr(incontext_model, "read_items", counted)
    whole = judge.judge_items(shown, asked)
    assert max(sizes) == 5
    past = read(random_gpt2, beginning(judge.prompts, 4))
    one = sum(states.numel() * states.element_size() for layer in past for states in layer)
    monkeypatch.setattr(incontext_model, "_MOST_HELD", 3 * one)
    sizes.clear()
    assert judge.judge_items(shown, asked).tolist() == whole.tolist()
    assert 1 <= max(sizes) <= 4


def _first(model, tokens):
    with torch.no_grad():
        return int(model(torch.tensor([tokens])).logits[0, -1].argmax())


def reciting(tokens, vocabulary):
    """A GPT-2 that follows each of the tokens by the next one, whatever came before: its blocks do nothing."""
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=32, n_embd=vocabulary, n_layer=1, n_head=1, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float(name.endswith("ln_f.weight")))
        model.transformer.wte.weight.copy_(torch.eye(vocabulary))
        model.lm_head.weight[tokens[1:], tokens[:-1]] = 1.0
    return model


@pytest.mark.parametrize(("end", "shown"), [("\n", "xyz"), ("<|endoftext|>", "xyz"), ("q", "xyzqt")])
def test_an_answer_ends_at_a_line_break_or_the_end_of_text(tokenizer, end, shown):
    """Whatever its neighbour, which starts behind that end, still has to say."""
    tokens = tokenizer.encode(f"xyz{end}tuvwop", add_special_tokens=False)
    model, prompts = reciting(tokens, len(tokenizer)), TokenPrompts(tokenizer, settings())
    reading = read_items(model, read(model, [5]), [[6, 7], [8]], prompts.ids.pad)
    first = torch.tensor([tokens[0], *tokenizer.encode("t", add_special_tokens=False)])
    rows = write_tokens(model, reading, first, prompts, 5)
    assert [answer_text(row, prompts) for row in rows] == [shown, "tuvwo"]


# Prompts.


def test_a_prompt_reads_as_its_templates_say(tokenizer):
    prompts = TokenPrompts(tokenizer, settings())
    (item,) = prompts.items(["it  hums\nand glows"], 50)
    shown = prompts.demonstrations(["it glows"], prompts.answers(["no"]))
    assert tokenizer.decode([*prompts.start, *chain(*shown), *item], skip_special_tokens=True) == (
        "Sort the texts.\n\nText: it glows\nAnswer: no\nText: it hums and glows\nAnswer:"
    )
    assert prompts.start[0] == tokenizer.bos_token_id
    whole = tokenizer.encode("Text: it hums and glows\nAnswer: no", add_special_tokens=False)
    assert [*item, *prompts.answers(["no"])[0]] == whole


def test_words_before_the_label_belong_to_the_prompt(tokenizer):
    prompts = TokenPrompts(tokenizer, settings(item="{text}\n", answer="This is {label}.\n"))
    assert tokenizer.decode(prompts.items(["it"], 9)[0]) == "it\nThis is"
    assert tokenizer.decode(prompts.answers(["no"])[0]) == " no"
    assert tokenizer.decode(prompts.demonstrations(["it"], [[]])[0]) == "it\nThis is.\n"


def test_a_special_token_spelt_out_in_a_text_is_dropped(tokenizer):
    (item,) = TokenPrompts(tokenizer, settings()).items(["it <|endoftext|> hums"], 50)
    assert tokenizer.eos_token_id not in item


@given(shots=st.integers(0, 6), length=st.integers(0, 30), seed=st.integers(0, 5))
def test_no_prompt_is_longer_than_what_it_is_said_to_need(tokenizer, shots, length, seed):
    prompts = TokenPrompts(tokenizer, settings())
    words = " ".join(WORDS[seed:] * 2)[: length * 3]
    answers = prompts.answers(LABELS)
    longest = max(map(len, answers))
    shown = prompts.demonstrations([words] * shots, [answers[place % len(answers)] for place in range(shots)])
    used = len(prompts.start) + len([*chain(*shown)]) + len(prompts.items([words], 12)[0]) + longest
    assert used <= prompts.needs(shots, longest)


def test_what_a_prompt_is_said_to_need_is_reached(tokenizer):
    prompts, words = TokenPrompts(tokenizer, settings()), " ".join(WORDS * 9)
    answer = max(prompts.answers(LABELS), key=len)
    shown = prompts.demonstrations([words] * 3, [answer] * 3)
    used = len(prompts.start) + len([*chain(*shown)]) + len(prompts.items([words], 12)[0]) + len(answer)
    assert used == prompts.needs(3, len(answer))


# Draws.


def test_draws_share_the_labels_evenly():
    labels = ["rare"] * 3 + ["common"] * 500 + ["usual"] * 60
    counted = [_count(labels, draw_rows(labels, 6, True, 0, draw)) for draw in range(30)]
    assert counted == [{"rare": 2, "common": 2, "usual": 2}] * 30


def test_a_label_that_runs_out_is_made_up_for_by_the_others():
    labels = ["rare"] * 2 + ["common"] * 50 + ["usual"] * 50
    assert _count(labels, draw_rows(labels, 12, True, 0, 0)) == {"rare": 2, "common": 5, "usual": 5}


def test_which_labels_get_one_more_is_left_to_chance():
    labels = ["rare"] * 5 + ["common"] * 500
    singles = [labels[draw_rows(labels, 1, True, 0, draw)[0]] for draw in range(200)]
    assert 70 < singles.count("rare") < 130


def test_demonstrations_stand_in_random_order():
    labels = ["a", "b"] * 20
    orders = {tuple(labels[index] for index in draw_rows(labels, 4, True, 0, draw)) for draw in range(200)}
    assert len(orders) == 6  # 4 over 2


def test_free_labels_are_drawn_as_they_come():
    labels = ["rare"] * 5 + ["common"] * 500
    drawn = [labels[draw_rows(labels, 1, False, 0, draw)[0]] for draw in range(200)]
    assert drawn.count("rare") < 20


def test_draws_depend_on_seed_number_and_shots_alone():
    labels = ["a", "b"] * 50
    assert draw_rows(labels, 8, True, 3, 1) == draw_rows(labels, 8, True, 3, 1)
    others = [(8, 3, 2), (8, 4, 1), (10, 3, 1)]
    drawn = {frozenset(draw_rows(labels, shots, True, seed, draw)) for shots, seed, draw in others}
    assert len(drawn) == 3
    assert not any(set(draw_rows(labels, 8, True, 3, 1)) <= other for other in drawn)


def test_the_same_items_are_asked_whatever_is_shown():
    assert chosen_items(1000, 300, 7) == chosen_items(1000, 300, 7) != chosen_items(1000, 300, 8)
    assert len(set(chosen_items(1000, 300, 7))) == 300
    assert chosen_items(4, 300, 7) == [0, 1, 2, 3]


def _count(labels, chosen):
    assert len(set(chosen)) == len(chosen)
    found = [labels[index] for index in chosen]
    return {label: found.count(label) for label in dict.fromkeys(labels)}


# Answers.


def test_calibration_divides_by_the_mean_over_inputs_without_content():
    scores = torch.tensor([[0.8, 0.2], [0.6, 0.4]]).log() - 3.0  # summed log-probabilities need no scale
    assert torch.allclose(content_free_bias(scores).exp(), torch.tensor([0.7, 0.3]))


def test_choices_are_calibrated(model, tokenizer):
    prompts, shown, asked = TokenPrompts(tokenizer, settings()), records(3, seed=3), texts(20, seed=9)
    start, items = beginning(prompts, 3), prompts.items(asked, 12)
    plain = _plain_scores(model, start, items, prompts.answers(LABELS)).argmax(dim=1).tolist()
    expected = _plain_choices(model, prompts, shown, asked)
    assert expected != [LABELS[index] for index in plain]
    assert Chooser(model, prompts, LABELS).are_right(read(model, start), items, expected).all()


def test_choices_are_taken_as_they_are_where_calibration_is_off(model, tokenizer):
    prompts = TokenPrompts(tokenizer, settings(calibrate=False))
    start, items = beginning(prompts, 3), prompts.items(texts(20, seed=9), 12)
    plain = _plain_scores(model, start, items, prompts.answers(LABELS)).argmax(dim=1).tolist()
    expected = [LABELS[index] for index in plain]
    assert Chooser(model, prompts, LABELS).are_right(read(model, start), items, expected).all()


def _plain_scores(model, start, items, answers):
    scores = [[plainly(model, [*start, *item], answer) for answer in answers] for item in items]
    return torch.tensor(scores, dtype=torch.float64)


def test_the_first_token_of_a_free_answer_is_calibrated(model, tokenizer):
    prompts = TokenPrompts(tokenizer, settings())
    start, items = beginning(prompts, 2), prompts.items(texts(8, seed=4), 12)
    free = _plain_next(model, start, prompts.items(CONTENT_FREE, 12))
    plain = _plain_next(model, start, items)
    odds = plain - free.exp().mean(dim=0).log()
    unlikely = plain < plain.topk(FIRST_TOKENS, dim=1).values[:, -1:]
    first = odds.masked_fill(unlikely, -torch.inf).argmax(dim=1).tolist()
    assert first != plain.argmax(dim=1).tolist()
    expected = [
        answer_text(written_plainly(model, [*start, *item], token, 6), prompts)
        for item, token in zip(items, first, strict=True)
    ]
    right = AnswerWriter(model, prompts).are_right(read(model, start), items, expected)
    assert right.tolist() == [has_same_wording(text, text) for text in expected]
    assert right.any()
    likeliest = [
        answer_text(written_plainly(model, [*start, *item], token, 6), prompts)
        for item, token in zip(items, plain.argmax(dim=1).tolist(), strict=True)
    ]
    uncalibrated = TokenPrompts(tokenizer, settings(calibrate=False))
    right = AnswerWriter(model, uncalibrated).are_right(read(model, start), items, likeliest)
    assert right.tolist() == [has_same_wording(text, text) for text in likeliest]


@torch.no_grad()
def _plain_next(model, start, items):
    """Log-probabilities of the token behind each prompt, (items, vocabulary)."""
    return torch.stack([model(torch.tensor([[*start, *item]])).logits[0, -1].log_softmax(dim=-1) for item in items])


@pytest.mark.parametrize(
    ("answer", "truth", "same"),
    [(" Josh  TRANK. ", "josh trank", True), ("josh", "josh trank", False), ("", "", False), ("!", "?", False)],
)
def test_free_answers_match_but_for_case_punctuation_and_spaces(answer, truth, same):
    assert has_same_wording(answer, truth) is same


# The audit.


def audited(model, tokenizer, changes=None, rows=40, labels=LABELS):
    made = settings(**(changes or {}))
    judge = local_judge(model, tokenizer, labels, made)
    return audit_in_context(judge, records(rows), records(60, seed=1), labels, made, BOOTSTRAP, 7)


def test_the_answers_do_not_depend_on_the_batch(random_gpt2, tokenizer):
    choosers = [Chooser(random_gpt2, TokenPrompts(tokenizer, settings(batch=batch)), LABELS) for batch in (1, 12)]
    one, many = (correct_answers(each, records(40), records(12, seed=1), [0, 2, 5], 2, 7) for each in choosers)
    assert all(np.array_equal(one[shots], many[shots]) for shots in one)
    assert [one[shots].shape for shots in (0, 2, 5)] == [(1, 12), (2, 12), (2, 12)]


def test_every_answer_is_that_of_a_plain_pass(model, tokenizer):
    rows, test = records(40), records(60, seed=1)
    asked = sorted((test[index] for index in chosen_items(60, 12, 7)), key=lambda row: _length(tokenizer, row.text))
    prompts = TokenPrompts(tokenizer, settings())
    by_shots = correct_answers(Chooser(model, prompts, LABELS), rows, asked, [0, 2, 5], 2, 7)
    for shots, draws in by_shots.items():
        for draw, correct in enumerate(draws):
            chosen = [rows[index] for index in draw_rows([row.label for row in rows], shots, True, 7, draw)]
            labels = _plain_choices(model, prompts, chosen, [row.text for row in asked])
            assert correct.tolist() == [row.label == label for row, label in zip(asked, labels, strict=True)]
    assert len({tuple(correct) for draws in by_shots.values() for correct in draws}) > 1
    judge = local_judge(model, tokenizer, LABELS, settings())
    found = audit_in_context(judge, rows, test, LABELS, settings(), BOOTSTRAP, 7)
    accuracies = [list(one.per_draw) for one in (found.zero_shot, *found.shots)]
    assert accuracies == [draws.mean(axis=1).tolist() for draws in by_shots.values()]


def test_the_probability_of_an_own_label_is_that_of_a_plain_pass(model, tokenizer):
    rows, asked = records(2), records(9, seed=1)
    prompts = TokenPrompts(tokenizer, settings())
    for shown in ([], rows[:1], rows):
        found = Chooser(model, prompts, LABELS).own_probabilities(shown, asked)
        odds = _plain_odds(model, prompts, shown, [row.text for row in asked])
        expected = (odds / odds.sum(dim=1, keepdim=True))[range(9), [LABELS.index(row.label) for row in asked]]
        assert found == pytest.approx(expected.numpy(), abs=1e-5)


def _length(tokenizer, text):
    return len(TokenPrompts(tokenizer, settings()).items([text], 12)[0])


def _plain_choices(model, prompts, shown, asked):
    return [LABELS[index] for index in _plain_odds(model, prompts, shown, asked).argmax(dim=1).tolist()]


def _plain_odds(model, prompts, shown, asked):
    """Each label's probability behind each item over the one without content, (items, labels)."""
    options = prompts.answers(LABELS)
    answers = prompts.answers([row.label for row in shown])
    start = [*prompts.start, *chain(*prompts.demonstrations([row.text for row in shown], answers))]
    free = _plain_scores(model, start, prompts.items(CONTENT_FREE, 12), options)
    scores = _plain_scores(model, start, prompts.items(asked, 12), options)
    return scores.exp() / free.softmax(dim=1).mean(dim=0)


def test_what_does_not_fit_is_said_and_not_cut(random_gpt2, tokenizer):
    found = audited(random_gpt2, tokenizer, {"shots": (0, 2, 30, 50)})
    assert [shot.lacks for shot in (found.zero_shot, *found.shots)] == [None, None, "context", "context"]
    assert found.shots[0].needs <= CONTEXT < found.shots[1].needs
    late = found.to_json("v")["shots"][1]
    assert (late["fits"], late["accuracy"], late["gain"], late["per_draw"]) == (False, None, None, [])


def test_the_longest_that_fits_is_answered(random_gpt2, tokenizer):
    """At the very edge of the context: one token more would be an error of the model."""
    prompts = TokenPrompts(tokenizer, settings())
    longest = max(map(len, prompts.answers(LABELS)))
    spare = CONTEXT - prompts.needs(2, longest)
    found = audited(random_gpt2, tokenizer, {"shots": (0, 2), "item_tokens": 12 + spare})
    assert (found.shots[0].needs, found.shots[0].lacks) == (CONTEXT, None)
    assert audited(random_gpt2, tokenizer, {"shots": (0, 2), "item_tokens": 13 + spare}).shots[0].lacks == "context"


def test_too_few_rows_are_said(random_gpt2, tokenizer):
    assert [shot.lacks for shot in audited(random_gpt2, tokenizer, rows=4).shots] == [None, "demonstrations"]


def test_cut_items_are_counted(random_gpt2, tokenizer):
    asked = [Record(text, "no") for text in ("it", " ".join(WORDS * 3), "it hums")]
    judge = local_judge(random_gpt2, tokenizer, LABELS, settings())
    found = audit_in_context(judge, records(9), asked, LABELS, settings(), BOOTSTRAP, 0)
    assert (found.items, found.cut) == (3, 1)


def test_free_labels_are_written(random_gpt2, tokenizer):
    found = audited(random_gpt2, tokenizer, labels=())
    assert found.task == "span"
    assert [len(shot.per_draw) for shot in (found.zero_shot, *found.shots)] == [1, 2, 2]


def test_of_free_labels_rows_without_one_are_neither_shown_nor_asked_about(random_gpt2, tokenizer):
    judge = local_judge(random_gpt2, tokenizer, (), settings())
    shown, asked = records(9), records(5, 1)
    more = [Record("it hums", None), Record("it", "")]
    found = audit_in_context(judge, [*more, *shown], [*asked, *more], (), settings(), BOOTSTRAP, 0)
    assert (found.rows, found.items) == (9, 5)
    assert found == audit_in_context(judge, shown, asked, (), settings(), BOOTSTRAP, 0)


def test_verbalisers_stand_for_the_labels(random_gpt2, tokenizer):
    words = {label: f"w{place}" for place, label in enumerate(LABELS)}
    chooser = Chooser(random_gpt2, TokenPrompts(tokenizer, settings(verbalisers=words)), LABELS)
    assert [tokenizer.decode(tokens) for tokens in chooser.answers(["not so", "no"])] == [" w3", " w1"]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [([], LABELS), ([], ()), ([Record("a secret", None)], LABELS), ([Record("a secret", None)], ())],
)
def test_unusable_rows_are_errors_that_quote_nothing(random_gpt2, tokenizer, rows, labels):
    for shown, asked in ((rows, records(5)), (records(5), rows)):
        judge = local_judge(random_gpt2, tokenizer, labels, settings())
        with pytest.raises(DataError) as caught:
            audit_in_context(judge, shown, asked, labels, settings(), BOOTSTRAP, 0)
        assert "secret" not in str(caught.value)


def test_a_label_without_a_token_is_refused(random_gpt2, tokenizer):
    with pytest.raises(ParamsError, match="no token"):
        Chooser(random_gpt2, TokenPrompts(tokenizer, settings(answer="{label}\n")), ("no", "<|endoftext|>"))


# The verdict.


def gains(zero, *others):
    """What answers to 300 items come to, each bool (draws, items): those without demonstrations, then the others."""
    return [
        summarise_answers(4 * place, 10, None, correct, zero, BOOTSTRAP)
        for place, correct in enumerate((zero, *others))
    ]


def answers(rate, draws=4, seed=0):
    """The same share of right answers in every draw; a higher rate is right wherever a lower one is."""
    ranks = np.random.default_rng(seed).permutation(300) / 300
    return np.array([ranks < rate] * draws)


ZERO = answers(0.5, draws=1)


def result(judges):
    zero, *shots = gains(ZERO, answers(0.6))
    return InContextAnswers("classify", 50, 300, 0, CONTEXT, judges, zero, tuple(shots))


def test_the_gain_is_over_no_demonstrations():
    zero, same, more = gains(ZERO, answers(0.5), answers(0.6))
    assert zero.gain is None
    assert (same.gain.value, same.gain.low) == (0.0, 0.0)
    assert (more.gain.value, more.gain.low > 0) == (pytest.approx(0.1), True)


def test_the_gain_is_paired():
    """The same two accuracies, once right on mostly the same items and once on others."""
    sure, unsure = (gains(ZERO, answers(0.56, seed=seed))[1].gain for seed in (0, 1))
    assert sure.value == pytest.approx(unsure.value) == pytest.approx(0.06)
    assert sure.low > 0 >= unsure.low
    assert sure.high - sure.low < 0.5 * (unsure.high - unsure.low)


@pytest.mark.parametrize("measured", [(ZERO, np.zeros((0, 300), dtype=bool)), (np.zeros((0, 300), dtype=bool), ZERO)])
def test_what_was_not_measured_has_no_gain(measured):
    zero, correct = measured
    assert summarise_answers(4, 900, None, correct, zero, BOOTSTRAP).gain is None


@pytest.mark.parametrize("helps", [True, False])
def test_demonstrations_that_help_make_a_judge(random_gpt2, tokenizer, monkeypatch, helps):
    shown = {0: ZERO, 2: answers(0.505), 5: answers(0.6 if helps else 0.4)}
    monkeypatch.setattr(incontext, "correct_answers", lambda *_: shown)
    assert audited(random_gpt2, tokenizer).judges is helps


def found_to_help(gain, spread, runs):
    """How many runs find that demonstrations help: five draws of each of three numbers, on 300 items."""
    rng = np.random.default_rng(int(100 * spread))

    def passes():
        known = rng.uniform(0.3, 0.8, (1, 300))
        zero = rng.random(known.shape) < known
        draws = (known + gain + spread * rng.standard_normal((5, 1)) for _ in range(3))
        return any(helps(rng.random((5, 300)) < draw, zero, 3) for draw in draws)

    return sum(passes() for _ in range(runs))


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
def test_draws_that_differ_and_help_nothing_seldom_make_a_judge(spread):
    """A draw of demonstrations moves all items together, and three numbers of them are looked at."""
    assert found_to_help(0.0, spread, 200) < 16  # 5 are meant at .025; 16 of a binomial come once in ten thousand


def test_demonstrations_that_help_in_every_draw_are_seen():
    assert found_to_help(0.15, 0.03, 40) > 35
    assert helps(np.ones((1, 9), dtype=bool), np.zeros((1, 9), dtype=bool), 1)
    assert not helps(np.ones((1, 9), dtype=bool), np.ones((1, 9), dtype=bool), 1)
    assert not helps(np.zeros((0, 9), dtype=bool), np.ones((1, 9), dtype=bool), 1)


def test_the_deviation_is_that_of_the_draws():
    """Draws of 10, 20 and 30 % right are 10 points apart; a single draw has no spread."""
    correct = np.arange(300) / 300 < np.array([[0.1], [0.2], [0.3]])
    zero, three = gains(ZERO, correct)
    assert zero.deviation is None
    assert three.deviation == three.to_json()["deviation"] == pytest.approx(0.1)
    assert summarise_answers(4, 10, "context", correct[:0], ZERO, BOOTSTRAP).deviation is None


def test_a_model_that_cannot_judge_says_so():
    judged, unjudged = (result(judges).to_json("dp3") for judges in (True, False))
    assert (judged["judges"], unjudged["judges"]) == (True, False)
    assert "cannot judge" in unjudged["note"]
    assert "cannot" not in judged["note"]


def test_json_has_the_published_shape(tmp_path):
    write_json(tmp_path / "incontext.json", result(True).to_json("dp3"))
    document = read_json(tmp_path / "incontext.json")
    assert InContextAnswers.from_json(document).to_json("dp3") == document
    assert (document["variant"], document["zone"], document["rows"], document["items"]) == ("dp3", "internal", 50, 300)
    assert document["zero_shot"]["accuracy"]["value"] == pytest.approx(0.5)
    assert document["zero_shot"]["gain"] is None
    (shot,) = document["shots"]
    assert (shot["shots"], shot["fits"], shot["lacks"], len(shot["per_draw"])) == (4, True, None, 4)
    assert shot["accuracy"]["low"] < shot["accuracy"]["value"] < shot["accuracy"]["high"]
    assert shot["gain"]["low"] > 0


# The stage.


def test_the_stage_reads_the_judge_that_is_named(random_gpt2, tokenizer, tmp_path, monkeypatch):
    random_gpt2.save_pretrained(tmp_path / "judge")
    tokenizer.save_pretrained(tmp_path / "judge")
    (tmp_path / "workspace").mkdir()
    monkeypatch.chdir(tmp_path / "workspace")
    body = demo()
    body["models"]["judge"] = {"kind": "local", "model": str(tmp_path / "judge")}
    judge = incontext_eval.judge_of(parse(body), settings(), "real")
    rows, test = records(40, labels=list(body["dataset"]["labels"])), records(60, seed=1)
    own = Chooser(random_gpt2, TokenPrompts(tokenizer, settings()), list(body["dataset"]["labels"]))
    asked = [Record(row.text, rows[0].label) for row in test]
    assert judge.judge_items(rows[:3], asked).tolist() == own.judge_items(rows[:3], asked).tolist()


def test_the_real_rows_say_whether_the_model_can_judge(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="'real' first"):
        incontext_eval.can_judge()
    for judges in (True, False):
        write_json("reports/metrics/real/incontext.json", result(judges).to_json("real"))
        assert incontext_eval.can_judge() is judges
