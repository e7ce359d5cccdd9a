"""The budget of tokens and money: never passed, and not given up long before."""

import contextlib
import threading
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from palimpsest.errors import BackendError
from palimpsest.models.chat.base import Answer, Ask, most_read
from tests.models.chat.asked import ask, chat, cost, kept, numbered
from tests.models.chat.server import Reply, Seen, completion, echo, failure, serving

KINDS = ("good", "good", "good", "silent", "broken", "bad json", "error")


class Model:
    """A server that writes as it likes within what it is asked for, fails as it likes, and keeps count itself."""

    def __init__(self, fates: list[tuple[str, float, float]], cost: tuple[float, float]) -> None:
        self.read, self.written, self.good = 0, 0, 0
        self._fates, self._cost, self._lock = fates, cost, threading.Lock()

    @property
    def money(self) -> float:
        return (self.read * self._cost[0] + self.written * self._cost[1]) / 1e6

    def __call__(self, seen: Seen, count: int) -> Reply:
        kind, share_read, share_written = self._fates[count % len(self._fates)]
        if kind == "error":
            return failure(500)
        words, most = seen.json["messages"][0]["content"], seen.json["max_tokens"]
        read, written = 1 + int(share_read * len(words)), 1 + int(share_written * (most - 1))
        with self._lock:
            self.read, self.written, self.good = self.read + read, self.written + written, self.good + (kind == "good")
        good = completion("Words.", read=read, written=written)
        silent = Reply(body={key: value for key, value in good.body.items() if key != "usage"})
        return {"good": good, "silent": silent, "broken": Reply(0), "bad json": Reply(body=b"{")}[kind]


fates = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(fates=fates, concurrency=st.integers(1, 8), most_tokens=st.integers(1, 3000), most=st.floats(1e-6, 0.01))
def test_no_limit_is_ever_passed(
    tmp_path: Path, fates: list[tuple[str, float, float]], concurrency: int, most_tokens: int, most: float
):
    """Neither by the server's count nor by ours, over two attempts, however many requests are under way."""
    model, told = Model(fates, (1.0, 4.0)), dict[int, Answer]()
    book = tmp_path / f"{uuid.uuid4().hex}.db"
    with serving(model) as there:
        for _ in range(2):
            talk = chat(there.url, book, concurrency=concurrency, most_tokens=most_tokens, most=most)
            with contextlib.suppress(BackendError):
                talk.answer(numbered(12), told.__setitem__)
    spent = talk.spent
    assert model.read + model.written <= spent.read + spent.written <= most_tokens
    assert model.money <= cost(spent) <= most
    assert spent.requests == len(there.seen)


@pytest.mark.parametrize("concurrency", [1, 6])
def test_the_budget_is_used_until_the_next_request_might_pass_it(concurrency: int):
    """Requests under way, which will use less than they could, are waited for rather than given up."""
    one = ask()
    worst = most_read(one) + one.max_tokens
    with serving(echo) as there:  # 12 tokens each
        talk = chat(there.url, concurrency=concurrency, most_tokens=12 * 20 + worst - 1)
        told: list[int] = []
        with pytest.raises(BackendError, match="most_tokens") as caught:
            talk.answer([ask(number=number) for number in range(100)], lambda place, answer: told.append(place))
    assert len(there.seen) == 20
    assert len(told) == 20
    assert "240 of" in caught.value.problem
    assert "Tell" not in str(caught.value)


def test_money_is_counted_by_both_prices():
    with serving(echo) as there:  # 10 tokens read and 2 written: 18 millionths
        talk = chat(there.url, concurrency=1, most=18e-6 * 5 + 1e-3)
        with pytest.raises(BackendError, match=r"price\.most"):
            talk.answer([ask(max_tokens=238, number=number) for number in range(100)])
    assert cost(talk.spent) == pytest.approx(len(there.seen) * 18e-6)
    worst = (most_read(ask()) + 4 * 238) / 1e6
    assert cost(talk.spent) + worst > 18e-6 * 5 + 1e-3 >= cost(talk.spent) + worst - 18e-6


def test_without_limits_everything_is_answered():
    with serving(echo) as there:
        assert len(chat(there.url).answer(numbered(30))) == 30


def test_a_run_goes_on_where_its_budget_stopped_it(tmp_path: Path):
    path, asks = tmp_path / "answers.db", [ask(number=number) for number in range(40)]
    with serving(echo) as there:
        for most_tokens, answered in ((300, range(5, 25)), (300, range(5, 25)), (5000, range(40, 41))):
            talk, inner = kept(there.url, path, most_tokens=most_tokens)
            if most_tokens == 300:
                with pytest.raises(BackendError):
                    talk.answer(asks)
                assert inner.spent.read + inner.spent.written <= 300
            else:
                assert [answer.text for answer in talk.answer(asks)] == ["Tell me."] * 40
            assert len(there.seen) in answered
    assert inner.spent.requests == 40
    assert inner.spent.read == 400


def test_an_ask_that_never_fits_is_not_sent():
    with serving(echo) as there, pytest.raises(BackendError):
        chat(there.url, most_tokens=100).answer([ask(max_tokens=100)])
    assert there.seen == []


def test_the_most_that_a_prompt_can_be_read_as_is_its_bytes_and_a_template():
    short, long = Ask((("user", "a"),), 1, 1.0, 1.0), Ask((("system", "é☂"), ("user", "a")), 1, 1.0, 1.0)
    assert most_read(long) - most_read(short) >= len("é☂".encode())
