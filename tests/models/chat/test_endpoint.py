"""A chat with a real HTTP server that behaves well and badly."""

import gzip
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from palimpsest.errors import BackendError, ModelError
from palimpsest.models.chat.base import Answer, most_read
from palimpsest.models.chat.endpoint import EndpointChat
from tests.models.chat import server
from tests.models.chat.asked import KEY, ask, chat, cost, endpoint, kept, numbered
from tests.models.chat.server import Reply, Seen, completion, echo, failure, serving

BAD_REPLIES = {
    "not json": Reply(body=b"<html>busy</html>", headers={"content-type": "text/html"}),
    "half of a json": Reply(body=b'{"choices": [{"message": '),
    "deep json": Reply(body=b"[" * 100_000),
    "no choices": Reply(body={"choices": []}),
    "choices of another kind": Reply(body={"choices": "none", "usage": 7}),
    "a list": Reply(body=[1, 2]),
    "no text": completion(None),
    "text of another kind": completion({"a": 1}),  # type: ignore[arg-type]
    "nothing": Reply(body=b""),
}


def told_of(error: BackendError) -> str:
    assert error.problem.endswith(".")
    assert error.remedy.endswith(".")
    return str(error)


def test_answers_come_in_the_order_of_the_asks_and_are_told_as_they_come():
    told: dict[int, Answer] = {}
    with serving(echo) as there:
        talk = chat(there.url)
        answers = talk.answer(numbered(20), told.__setitem__)
    assert [answer.text.count("word") for answer in answers] == list(range(1, 21))
    assert {answer.finish for answer in answers} == {"stop"}
    assert told == dict(enumerate(answers))
    spent = talk.spent
    assert (spent.requests, spent.read, spent.written, spent.retries, spent.failed) == (20, 200, 210, 0, 0)
    assert cost(spent) == pytest.approx((200 * 1 + 210 * 4) / 1e6)


def test_so_many_requests_are_under_way_at_once_as_the_settings_say():
    together, fourth = threading.Barrier(3), threading.Event()

    def wait_for_others(seen: Seen, count: int) -> Reply:
        if count < 3:
            together.wait(20)
            fourth.wait(0.5)  # none comes
        else:
            fourth.set()
        return echo(seen, count)

    with serving(wait_for_others) as there:
        answers = chat(there.url, concurrency=3, retries=0).answer(numbered(9))
    assert [answer.finish for answer in answers] == ["stop"] * 9
    assert there.most_at_once == 3


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch):
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "somebody-elses")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which nothing takes that is not encrypted
    one = ask("Hello.", 7, number=3)
    with serving(echo) as there:
        for key in (KEY, None):
            EndpointChat(endpoint(there.url), key).answer([one])
    first, second = there.seen
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 7, "temperature": 1.0,
            "top_p": 1.0}  # fmt: skip
    assert (first.path, first.json, first.headers["authorization"]) == ("/v1/chat/completions", body, f"Bearer {KEY}")
    assert second.json == body
    usual = {"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent"}
    assert set(second.headers) == usual  # nothing of the machine or its user
    assert set(first.headers) == {*usual, "authorization"}
    assert not any("somebody" in value for value in [*first.headers.values(), *second.headers.values()])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(status: int):
    with serving(echo) as elsewhere:
        moved = Reply(status, {}, {"location": f"{elsewhere.url}/chat/completions"})
        with serving(lambda seen, count: moved) as there, pytest.raises(BackendError, match=f"HTTP {status}"):
            chat(there.url).answer([ask()])
    assert (len(there.seen), len(elsewhere.seen)) == (1, 0)


def test_a_query_of_the_url_stays_behind_the_path():
    with serving(echo) as there:
        chat(f"{there.url}?version=2").answer([ask()])
    assert there.seen[0].path == "/v1/chat/completions?version=2"


@pytest.mark.parametrize("many", [True, 2**53, 10**30, 1.5])
def test_a_count_beyond_reason_is_none(many: object):
    usage = {"prompt_tokens": many, "completion_tokens": many}
    with serving(lambda seen, count: Reply(body=echo(seen, count).body | {"usage": usage})) as there:
        assert chat(there.url).answer([ask()]) == [Answer("Tell me.", "stop", most_read(ask()), ask().max_tokens)]


def test_an_answer_is_no_longer_than_its_tokens_can_be():
    with serving(lambda seen, count: completion("no end " * 10_000)) as there:
        (answer,) = chat(there.url).answer([ask(max_tokens=5)])
    assert (len(answer.text), answer.finish) == (5 * 64, "length")


def test_what_swells_on_its_way_is_no_answer():
    packed = gzip.compress(json.dumps(completion("a" * 2**24).body).encode())
    large = Reply(body=b" " * (2**24 + 1))
    replies = [Reply(body=packed, headers={"content-encoding": "gzip"}), large]
    with serving(lambda seen, count: replies[count]) as there:
        assert chat(there.url, retries=1).answer([ask()]) == [Answer("", "failed")]


@pytest.mark.parametrize("asked", ["0", "Fri, 01 Jan 99999999999999999999 00:00:00 GMT", "1e999", "-3", "soon"])
def test_a_pause_that_is_none_is_the_chats_own(asked: str):
    replies = [failure(503, retry_after=asked)] * 2
    with serving(lambda seen, count: replies[count] if count < 2 else echo(seen, count)) as there:
        assert chat(there.url, retries=2).answer([ask()])[0].finish == "stop"


@pytest.mark.timeout(20)  # the chat's own pause would be longer
def test_the_pause_that_a_server_asks_for_is_taken():
    def busy_once(seen: Seen, count: int) -> Reply:
        return failure(429, "rate_limit_exceeded", retry_after="0.01") if count == 0 else echo(seen, count)

    with serving(busy_once) as there:
        patient = EndpointChat(endpoint(there.url), KEY, pause=10_000.0)
        assert patient.answer([ask()])[0].finish == "stop"
    assert (patient.spent.requests, patient.spent.retries, patient.spent.read) == (2, 1, 10)


def test_a_pause_beyond_reason_fails_the_ask():
    with serving(lambda seen, count: failure(429, retry_after="86400")) as there:
        assert chat(there.url).answer([ask()])[0].finish == "failed"
    assert len(there.seen) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 0])
def test_what_may_pass_is_sent_again(status: int):
    def bad_twice(seen: Seen, count: int) -> Reply:
        return (failure(status) if status else Reply(0)) if count < 2 else echo(seen, count)

    with serving(bad_twice) as there:
        talk = chat(there.url, retries=2)
        assert talk.answer([ask()]) == [Answer("Tell me.", "stop", 10, 2)]
    assert (talk.spent.requests, talk.spent.retries, talk.spent.failed) == (3, 2, 0)
    perhaps_answered = status in (0, 408, 502, 504)  # so it counts as the most that it can have used
    assert talk.spent.read == 10 + 2 * perhaps_answered * most_read(ask())
    assert talk.spent.written == 2 + 2 * perhaps_answered * ask().max_tokens


def test_an_answer_that_does_not_come_in_time_is_asked_for_again():
    release = threading.Event()

    def slow_once(seen: Seen, count: int) -> Reply:
        reply = echo(seen, count)
        return Reply(body=reply.body, hold=release) if count == 0 else reply

    with serving(slow_once) as there:
        talk = chat(there.url, timeout=1.0, retries=5)
        assert talk.answer([ask()])[0].finish == "stop"
        release.set()
    assert talk.spent.read >= most_read(ask()) + 10  # whether the first was written, and is charged, nobody knows


@pytest.mark.parametrize(
    "reply",
    [
        completion("No", "content_filter"),
        completion(None, "stop", refusal="I will not."),
        failure(400, "content_filter"),
    ],
)
def test_refusals_are_answers_that_are_not_asked_for_again(reply: Reply):
    with serving(lambda seen, count: reply) as there:
        assert chat(there.url).answer([ask()])[0].finish == "refused"
    assert len(there.seen) == 1


def test_an_answer_that_is_cut_off_says_so():
    replies = [completion("Once upon", "length"), completion(None, "length")]
    with serving(lambda seen, count: replies[count]) as there:
        answers = chat(there.url, concurrency=1).answer([ask(), ask()])
    assert answers == [Answer("Once upon", "length", 10, 5), Answer("", "length", 10, 5)]


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_reply_without_an_answer_is_asked_for_again_and_then_fails(name: str):
    with serving(lambda seen, count: BAD_REPLIES[name]) as there:
        talk = chat(there.url, retries=2)
        assert talk.answer([ask()]) == [Answer("", "failed")]
    assert (talk.spent.requests, talk.spent.retries, talk.spent.failed) == (3, 2, 1)
    told = name in ("no text", "text of another kind")
    assert talk.spent.read == 3 * (10 if told else most_read(ask()))
    assert talk.spent.written == 3 * (5 if told else ask().max_tokens)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": "3"}, 4,
                                   {"prompt_tokens": 9, "completion_tokens": 0}])  # fmt: skip
def test_a_reply_that_does_not_say_what_it_used_counts_as_the_most(usage: object):
    with serving(lambda seen, count: Reply(body=echo(seen, count).body | {"usage": usage})) as there:
        talk = chat(there.url)
        answer = talk.answer([ask()])[0]
    assert answer == Answer("Tell me.", "stop", most_read(ask()), ask().max_tokens)
    assert (talk.spent.read, talk.spent.written) == (answer.read, answer.written)


def test_half_a_character_is_no_trouble_for_the_file_of_answers(tmp_path: Path):
    broken = b'{"choices": [{"finish_reason": "stop", "message": {"content": "a\\ud83d b"}}]}'
    with serving(lambda seen, count: Reply(body=broken)) as there:
        assert kept(there.url, tmp_path / "a.db")[0].answer([ask()])[0].text == "a? b"


def test_one_bad_prompt_fails_alone():
    def pick(seen: Seen, count: int) -> Reply:
        return failure(400, "too_long") if b"word word word word" in seen.body else echo(seen, count)

    with serving(pick) as there:
        answers = chat(there.url).answer(numbered(5))
    assert [answer.finish for answer in answers] == ["stop", "stop", "stop", "failed", "failed"]
    assert len(there.seen) == 5


@pytest.mark.parametrize("together", [1, 4])
def test_a_server_that_names_the_limit_otherwise_is_told_so(together: int):
    all_there = threading.Barrier(together)

    def newer(seen: Seen, count: int) -> Reply:
        if "max_tokens" not in seen.json:
            return completion(str(seen.json["max_completion_tokens"]))
        if count < together:
            all_there.wait(20)
        return Reply(400, {"error": {"message": "No.", "code": "unsupported_parameter", "param": "max_tokens"}})

    with serving(newer) as there:
        asks = [ask(max_tokens=number) for number in range(9, 3, -1)]
        answers = chat(there.url, concurrency=together, retries=1).answer(asks)
    assert [answer.text for answer in answers] == ["9", "8", "7", "6", "5", "4"]
    assert len(there.seen) == len(asks) + together


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_turns_every_request_away_stops_the_run(status: int):
    secret = "Tell me about the lamp"
    with serving(lambda seen, count: failure(status, "not_you", f"Bad key {KEY} for {secret}")) as there:
        talk = chat(there.url)
        with pytest.raises(BackendError) as caught:
            talk.answer([ask(secret), ask(secret, number=1)])
    assert len(there.seen) == 2
    message = told_of(caught.value)
    assert f"HTTP {status}, not_you" in message
    assert there.url in message
    assert KEY not in message
    assert secret not in message
    assert (talk.spent.read, talk.spent.written, talk.spent.failed) == (0, 0, 2)


def test_a_used_up_account_stops_the_run():
    with (
        serving(lambda seen, count: failure(429, "insufficient_quota")) as there,
        pytest.raises(BackendError, match="insufficient_quota"),
    ):
        chat(there.url).answer([ask()])
    assert len(there.seen) == 1


def test_words_of_an_error_that_are_no_code_are_not_repeated():
    with serving(lambda seen, count: failure(401, "you said: hello")) as there, pytest.raises(BackendError) as caught:
        chat(there.url).answer([ask()])
    assert "hello" not in str(caught.value)


def test_a_server_that_is_not_there_stops_the_run():
    with serving(echo) as gone:
        pass
    talk = chat(gone.url, retries=1)
    with pytest.raises(BackendError) as caught:
        talk.answer(numbered(3))
    message = told_of(caught.value)
    assert "no connection" in message
    assert "word" not in message
    assert (talk.spent.requests, talk.spent.read, talk.spent.written) == (6, 0, 0)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:9/v1",
        "http://no such host/v1",
        "http://me:sk-secret@127.0.0.1:9/v1?k=sk-secret",
        "http://me:sk-secret@sk-secret@127.0.0.1:9/v1#k=sk-secret",
        "http://me:sk/sk-secret@127.0.0.1:9/v1",
    ],
)
def test_a_url_that_leads_nowhere_stops_the_run_and_no_secret_in_it_is_told(url: str):
    with pytest.raises(BackendError) as caught:
        chat(url, retries=0).answer([ask()])
    assert "sk-secret" not in told_of(caught.value)


def test_a_server_that_never_answers_in_time_stops_the_run():
    never = threading.Event()
    with serving(lambda seen, count: Reply(body={}, hold=never)) as there:
        with pytest.raises(BackendError, match="no answer within"):
            chat(there.url, timeout=0.2, retries=0).answer([ask()])
        never.set()


def test_many_failures_in_a_row_stop_the_run_before_every_ask_has_failed():
    with serving(lambda seen, count: failure(500)) as there:
        talk = chat(there.url, retries=0)
        assert {answer.finish for answer in talk.answer(numbered(10))} == {"failed"}
        with pytest.raises(BackendError, match="16 requests in a row; the last: HTTP 500"):
            talk.answer(numbered(500))
    assert len(there.seen) < 30


def test_answers_between_failures_keep_the_run_going():
    with serving(lambda seen, count: failure(500) if count % 10 else echo(seen, count)) as there:
        answers = chat(there.url, retries=0, concurrency=1).answer(numbered(50))
    assert sum(answer.finish == "failed" for answer in answers) == 45


def test_a_server_that_dies_midway_leaves_what_it_has_answered(tmp_path: Path):
    path, before = tmp_path / "answers.db", 0
    with alone() as (url, process):
        talk, inner = kept(url, path, retries=0)
        inner_answer = inner.answer

        def kill_at_the_tenth(asks, told):
            def count(place: int, answer: Answer) -> None:
                told(place, answer)
                nonlocal before
                before += answer.finish == "stop"
                if before == 10:
                    process.kill()
                    process.wait()

            return inner_answer(asks, count)

        inner.answer = kill_at_the_tenth  # type: ignore[method-assign]
        with pytest.raises(BackendError):
            talk.answer(numbered(200))
    with serving(echo) as there:
        talk, inner = kept(there.url, path)
        answers = talk.answer(numbered(200))
    assert [answer.text.count("word") for answer in answers] == list(range(1, 201))
    assert 10 <= before < 20
    assert len(there.seen) == 200 - before


class alone:
    """The echo in a process of its own."""

    def __enter__(self) -> tuple[str, "subprocess.Popen[str]"]:
        command = [sys.executable, str(server.__file__)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip(), self._process

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_the_rate_holds_for_all_requests_together():
    class Enough(Exception):
        pass

    def stop(place: int, answer: Answer) -> None:
        raise Enough

    with serving(echo) as there, pytest.raises(Enough):
        chat(there.url, requests_a_minute=0.001).answer(numbered(4), stop)
    assert len(there.seen) == 1


def test_no_asks_reach_no_server():
    assert chat("http://127.0.0.1:9/v1").answer([]) == []


def test_a_missing_client_names_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ModelError, match=r"palimpsest\[endpoint\]"):
        chat("http://127.0.0.1:9/v1")
