"""`transformers serve`, a real endpoint, with what stands in front of it in the tests of the pipeline."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.errors import BackendError
from palimpsest.models.chat.local import load_chat
from tests.models.chat import tiny
from tests.models.chat.asked import chat, kept
from tests.models.chat.recorder import recording
from tests.models.chat.served import transformers_serve
from tests.models.chat.server import serving

pytestmark = pytest.mark.xdist_group("serve")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    with transformers_serve(folder) as served:
        yield served


def test_it_answers_as_the_same_model_does_here(url: str, folder: Path):
    """At temperature 0 word for word; the tokens that it counts are ours."""
    asks = tiny.asks(4, max_tokens=12, temperature=0.0)
    talk = chat(url, key=None, model=str(folder))
    answers = talk.answer(asks)
    assert answers == load_chat(folder, batch=1, seed=1).answer(asks)
    assert talk.spent.read == sum(answer.read for answer in answers) > 0
    assert talk.spent.written == sum(answer.written for answer in answers) > 0
    assert talk.spent.failed == 0


def test_it_draws_another_answer_for_each_ask(url: str, folder: Path):
    one = tiny.asks(1, max_tokens=12)[0]
    asks = [dataclasses.replace(one, number=number) for number in range(5)]
    answers = chat(url, model=str(folder)).answer(asks)
    assert len({answer.text for answer in answers}) == 5


def test_the_recorder_sees_every_word_that_is_sent_and_no_other(url: str, folder: Path, tmp_path: Path):
    asks = tiny.asks(6, max_tokens=4)
    with recording(url) as between:
        talk, _ = kept(between.url, tmp_path / "a.db", model=str(folder))
        answers = talk.answer(asks)
        assert talk.answer(asks) == answers
    assert {answer.finish for answer in answers} <= {"stop", "length"}
    sent = sorted(tuple((part["role"], part["content"]) for part in seen.json["messages"]) for seen in between.seen)
    assert sent == sorted(ask.messages for ask in asks)
    assert all(b"very" in seen.body or b"Write short" in seen.body for seen in between.seen)


def test_the_recorder_passes_failures_on():
    with serving(lambda seen, count: pytest.fail("never asked")) as gone:
        pass
    with recording(gone.url) as between:
        assert chat(between.url, retries=0).answer(tiny.asks(1))[0].finish == "failed"
    assert len(between.seen) == 1


def test_a_model_that_it_does_not_serve_stops_the_run(url: str):
    with pytest.raises(BackendError, match="HTTP"):
        chat(url, model="/no/such/model", retries=0).answer(tiny.asks(40))
