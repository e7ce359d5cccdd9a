"""Answers are kept as they come, and paid for once."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest.models.chat.base import Answer, Ask, most_read
from palimpsest.models.chat.kept import KeptChat
from tests.models.chat import asked
from tests.models.chat.asked import ask, kept, numbered
from tests.models.chat.server import Reply, Seen, echo, serving


class Echo:
    """Answers with the ask's words, unless they say what to finish with."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []

    def answer(self, asks: Sequence[Ask], told: Callable[[int, Answer], None] | None = None) -> list[Answer]:
        self.asked += asks
        answers = [self._answer(one) for one in asks]
        for place, answer in reversed(list(enumerate(answers))):
            if told is not None:
                told(place, answer)
        return answers

    def _answer(self, one: Ask) -> Answer:
        words = one.messages[-1][1]
        return Answer(words, words if words in ("refused", "failed", "length") else "stop", 3, 4)  # type: ignore[arg-type]


def test_what_was_answered_is_not_asked_again(tmp_path: Path):
    first, second = Echo(), Echo()
    answers = KeptChat(first, tmp_path / "a" / "b.db", "m").answer(numbered(5))
    again = KeptChat(second, tmp_path / "a" / "b.db", "m")
    assert again.answer([*numbered(7)][::-1])[2:] == answers[::-1]
    assert len(first.asked) == 5
    assert sorted(len(one.messages[0][1].split()) for one in second.asked) == [6, 7]


def test_equal_asks_share_an_answer_and_all_else_tells_asks_apart(tmp_path: Path):
    one, inner = ask(), Echo()
    others = [replace(one, number=1), replace(one, max_tokens=41), replace(one, temperature=0.5),
              replace(one, top_p=0.5), replace(one, messages=(("system", "Tell me."),)),
              replace(one, messages=(("user", "Tell me."), ("user", "")))]  # fmt: skip
    talk = KeptChat(inner, tmp_path / "a.db", "m")
    assert len(talk.answer([one, *others, one, one])) == 9
    assert inner.asked == [one, *others]
    KeptChat(inner, tmp_path / "a.db", "another model").answer([one])
    assert len(inner.asked) == 8


def test_a_refusal_and_a_cut_are_kept_and_a_failure_is_not(tmp_path: Path):
    inner, asks = Echo(), [ask("refused"), ask("failed"), ask("length")]
    talk = KeptChat(inner, tmp_path / "a.db", "m")
    assert talk.answer(asks) == talk.answer(asks)
    assert inner.asked == [*asks, asks[1]]


def test_no_prompt_is_in_the_file(tmp_path: Path):
    path = tmp_path / "a.db"
    KeptChat(Echo(), path, "m").answer([ask("length")])
    with sqlite3.connect(path) as base:
        assert "Tell" not in "".join(base.iterdump())


def test_a_file_that_is_none_says_what_to_do(tmp_path: Path):
    (tmp_path / "a.db").write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="Move it away"):
        KeptChat(Echo(), tmp_path / "a.db", "m")


def test_a_killed_run_pays_for_no_answer_twice_and_forgets_no_request(tmp_path: Path):
    """What was under way when it was killed counts as the most that it can have used."""
    path, five, never = tmp_path / "a.db", threading.Event(), threading.Event()

    def answer_three(seen: Seen, count: int) -> Reply:
        if count == 4:
            five.set()
        return echo(seen, count) if count < 3 else Reply(body={}, hold=never)

    with serving(answer_three) as there:
        process = subprocess.Popen([sys.executable, "-m", asked.__name__, there.url, str(path)])
        assert five.wait(60)
        process.kill()
        process.wait()
        never.set()
    texts = [seen.json["messages"][0]["content"] for seen in there.seen]
    read = 3 * 10 + sum(most_read(ask(words)) for words in texts[3:])
    written = sum(len(words.split()) for words in texts[:3]) + 2 * ask().max_tokens
    with serving(echo) as there:
        talk, inner = kept(there.url, path)
        spent = inner.spent
        assert (spent.requests, spent.read, spent.written) == (5, read, written)
        answers = talk.answer(numbered(8))
    assert [len(answer.text.split()) for answer in answers] == list(range(1, 9))
    assert len(there.seen) == 5
