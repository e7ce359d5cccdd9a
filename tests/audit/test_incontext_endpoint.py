"""A judge at an endpoint: what it is sent and by whose word, what comes of it, and that nothing is asked twice."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from palimpsest.audit.statistics import Bootstrap
from palimpsest.errors import BackendError
from palimpsest.models.chat.settings import JudgeEndpoint
from palimpsest.privacy.ledger.records import Asset
from palimpsest.records.record import Record
from palimpsest.workspace import PRIVATE
from palimpsest_lab.audits.incontext import audit_in_context
from palimpsest_lab.audits.incontext_endpoint import EndpointJudge, TextPrompts, label_scores
from palimpsest_lab.audits.incontext_settings import CONTENT_FREE, InContext
from palimpsest_lab.stages import incontext_eval
from tests.machines import own_ledger
from tests.models.chat.server import Behaviour, Reply, Running, Seen, completion, serving

LABELS = ("praise", "blame")
SETTINGS = InContext(shots=(0, 4), draws=2, items=40, item="{text}\nSays:", answer=" {label}\n", demonstration_tokens=3)
ROWS = [Record(f"shown {word}", label) for word, label in (("good", "praise"), ("bad", "blame")) for _ in range(4)]
ASKED = [
    Record(f"asked {number} {word}", label)
    for number in range(20)
    for word, label in (("good", "praise"), ("bad", "blame"))
]


def place(url: str, **changes: object) -> JudgeEndpoint:
    settings = {
        "kind": "endpoint",
        "url": url,
        "model": "m",
        "concurrency": 4,
        "retries": 0,
        "may_read_private_rows": True,
        "listed": 5,
        **changes,
    }
    return JudgeEndpoint.model_validate(settings)


def words_of(seen: Seen) -> str:
    body = seen.json
    return str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"])


def listing(likely: Mapping[str, float], chat: bool) -> Reply:
    """A reply that lists likely first tokens, as a chat or as a completion does."""
    told = [{"token": token, "logprob": value} for token, value in likely.items()]
    logprobs = (
        {"content": [{"token": "x", "logprob": 0.0, "top_logprobs": told}]} if chat else {"top_logprobs": [likely]}
    )
    choice = {"index": 0, "finish_reason": "length", "logprobs": logprobs}
    choice |= {"message": {"role": "assistant", "content": "x"}} if chat else {"text": "x"}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    return Reply(body={"id": "1", "object": "o", "model": "m", "choices": [choice], "usage": usage})


def reader(seen: Seen, count: int) -> Reply:
    """Leans to praise, and knows the text's last word only where demonstrations were shown."""
    words = words_of(seen)
    text = words.removesuffix("\nSays:").rpartition("\n")[2]
    sign = 1.0 * text.endswith("good") - 1.0 * text.endswith("bad") if "shown" in words else 0.0
    return listing({" Praise": -1.0 + sign, "bla": -3.0 - sign, "The": -0.1}, "messages" in seen.json)


@pytest.fixture
def there(request: pytest.FixtureRequest) -> Iterator[Running]:
    behave: Behaviour = getattr(request, "param", reader)
    with serving(behave) as running:
        yield running


def judge(running: Running, folder: Path, prompts: InContext = SETTINGS, **changes: object) -> EndpointJudge:
    return EndpointJudge(place(running.url, **changes), prompts, LABELS, folder / "real.sqlite", bytes(32))


def test_an_endpoint_is_no_judge_without_the_owners_word() -> None:
    for given in ({}, {"may_read_private_rows": False}):
        with pytest.raises(ValidationError, match=r"is sent private test rows.*may_read_private_rows: true"):
            JudgeEndpoint.model_validate({"kind": "endpoint", "url": "http://x/v1", "model": "m", **given})


@pytest.mark.parametrize("chat", [True, False])
def test_demonstrations_that_help_are_seen_through_calibrated_answers(
    there: Running, tmp_path: Path, chat: bool
) -> None:
    found = audit_in_context(judge(there, tmp_path, chat=chat), ROWS, ASKED, LABELS, SETTINGS, Bootstrap(300, 0), 7)
    assert (found.judges, found.context, found.cut) == (True, 4096, 0)
    assert [one.accuracy.value for one in (found.zero_shot, *found.shots) if one.accuracy] == [0.5, 1.0]
    path, bodies = there.seen[0].path, [seen.json for seen in there.seen]
    assert path == ("/v1/chat/completions" if chat else "/v1/completions")
    assert {(body["max_tokens"], body["temperature"]) for body in bodies} == {(1, 0.0)}
    assert {json.dumps([body.get("logprobs"), body.get("top_logprobs")]) for body in bodies} == {
        "[true, 5]" if chat else "[5, null]"
    }


def test_nothing_that_was_answered_is_asked_again(there: Running, tmp_path: Path) -> None:
    first = judge(there, tmp_path).judge_items(ROWS, ASKED)
    sent = len(there.seen)
    assert sent == len(ASKED) + len(CONTENT_FREE)
    assert np.array_equal(judge(there, tmp_path).judge_items(ROWS, ASKED), first)
    assert len(there.seen) == sent


def test_without_calibration_nothing_else_is_asked(tmp_path: Path) -> None:
    """The endpoint leans to praise, for texts without content more than for any other."""

    def leaning(seen: Seen, count: int) -> Reply:
        asked = words_of(seen).startswith("asked")
        return listing({"praise": -0.5, "blame": -1.0} if asked else {"praise": -0.1, "blame": -3.0}, True)

    with serving(leaning) as running:
        raw = judge(running, tmp_path, SETTINGS.model_copy(update={"calibrate": False})).judge_items([], ASKED)
        assert len(running.seen) == len(ASKED)
        calibrated = judge(running, tmp_path).judge_items([], ASKED)
    assert raw.tolist() == [row.label == "praise" for row in ASKED]
    assert calibrated.tolist() == [row.label == "blame" for row in ASKED]


def test_what_the_prompt_says() -> None:
    prompts = TextPrompts(
        InContext(item="Text: {text}\nSays:", answer=" {label}\n", instruction="Sort.\n", item_tokens=2)
    )
    assert prompts.prompt([("one  two", "praise")], "a b c") == "Sort.\nText: one two\nSays: praise\nText: a b\nSays:"


def test_what_does_not_fit_is_not_sent(there: Running, tmp_path: Path) -> None:
    found = audit_in_context(judge(there, tmp_path, context=150), ROWS, ASKED, LABELS, SETTINGS, Bootstrap(300, 0), 7)
    assert [one.lacks for one in (found.zero_shot, *found.shots)] == [None, "context"]
    assert not any("shown" in words_of(seen) for seen in there.seen)


@pytest.mark.parametrize("there", [lambda seen, count: completion("praise")], indirect=True)
def test_an_endpoint_without_log_probabilities_is_named_before_more_rows_are_sent(
    there: Running, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="without log-probabilities") as caught:
        judge(there, tmp_path, retries=4, concurrency=1).judge_items(ROWS, ASKED)
    assert "vLLM" in caught.value.remedy
    assert len(there.seen) == 1


def test_an_answer_that_begins_no_label_is_wrong_and_calibrates_nothing(tmp_path: Path) -> None:
    def silent(seen: Seen, count: int) -> Reply:
        return listing({"The": -0.1} if words_of(seen).startswith("asked") else {"praise": -1.0, "blame": -2.0}, True)

    with serving(silent) as running:
        assert not judge(running, tmp_path).judge_items([], ASKED).any()


def test_a_token_counts_for_the_word_that_it_is_or_alone_begins() -> None:
    words = ("no", "not so", "never")
    assert label_scores([("no", -1.0), (" Not", -2.0), ("n", -0.1), ("", -0.2), ("else", -9.0)], words) == [
        -1.0,
        -2.0,
        -9.0,
    ]
    two = label_scores([("not", -1.0), (" not", -1.0)], words)[1]
    assert two == pytest.approx(-1.0 + np.log(2))


def test_what_it_answered_is_kept_in_the_private_zone() -> None:
    assert incontext_eval.KEPT.is_relative_to(PRIVATE)


def test_nobody_without_the_data_sets_key_can_try_a_row_on_what_was_kept(
    there: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two data sets of the same rows and settings, which differ in their keys."""
    monkeypatch.chdir(tmp_path)
    dataset = SimpleNamespace(asset="tickets", labels=LABELS)
    params: Any = SimpleNamespace(models=SimpleNamespace(judge=place(there.url)), dataset=dataset)
    names = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        own_ledger(tmp_path / name).register(Asset("tickets", 1e-5, 4.0, 1000))
        monkeypatch.setattr(incontext_eval, "ledger_url", lambda _, name=name: f"sqlite:///{tmp_path / name}/ledger.db")
        incontext_eval.judge_of(params, SETTINGS, name).judge_items([], ASKED)
        with closing(sqlite3.connect(incontext_eval.KEPT / f"{name}.sqlite")) as base:
            names.append({ask for (ask,) in base.execute("SELECT ask FROM answer")})
    assert len(names[0]) == len(names[1]) == len(ASKED) + len(CONTENT_FREE)
    assert not names[0] & names[1]
