"""A small HTTP server that plays an OpenAI-compatible endpoint, well or badly, as a test tells it."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server sends back."""

    status: int = 200  # of HTTP; 0 breaks the connection off instead of answering
    body: Any = None  # as JSON, or bytes as they are
    headers: Mapping[str, str] = field(default_factory=dict)  # beside the usual ones
    hold: threading.Event | None = None  # the server waits for this before it answers


@dataclass(frozen=True)
class Seen:
    """A request."""

    path: str  # of the URL
    headers: Mapping[str, str]  # names in lower case
    body: bytes  # of the request

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


Behaviour = Callable[[Seen, int], Reply]  # the request and how many came before it


class Running:
    """A server that runs.

    Attributes:
        url: base URL, with /v1.
        seen: every request, in the order of their arrival.
        most_at_once: requests that were under way at the same time.
    """

    def __init__(self, behave: Behaviour) -> None:
        self.url, self.seen, self.most_at_once = "", list[Seen](), 0
        self._behave, self._lock, self._under_way = behave, threading.Lock(), 0

    def enter(self, seen: Seen) -> Reply:
        """Count a request and decide about it."""
        with self._lock:
            self.seen.append(seen)
            count = len(self.seen) - 1
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        return self._behave(seen, count)

    def leave(self) -> None:
        """Count a request as answered."""
        with self._lock:
            self._under_way -= 1


@contextmanager
def serving(behave: Behaviour) -> Iterator[Running]:
    """A server on a free port of this machine, for as long as the block runs."""
    running = Running(behave)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(running))
    running.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(running: Running) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body in one packet: two would wait for each other

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = running.enter(Seen(self.path, headers, body))
            if reply.hold is not None:
                reply.hold.wait(30)
            running.leave()
            with suppress(ConnectionError):  # who asked may be gone
                self._send(reply)

        def _send(self, reply: Reply) -> None:
            if not reply.status:
                self.close_connection = True
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def completion(text: str | None, finish: str = "stop", read: int = 10, written: int = 5, **message: Any) -> Reply:
    """A good reply."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return Reply(body={"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


def failure(status: int, code: str = "", message: str = "It failed.", **headers: str) -> Reply:
    """A bad one."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"error": {"message": message, "code": code or None}}, named)


def echo(seen: Seen, count: int) -> Reply:
    """Answers with the last message's words, as many tokens as it has words."""
    words = seen.json["messages"][-1]["content"]
    return completion(words, written=len(words.split()))


if __name__ == "__main__":  # a process of its own, that can die
    with serving(echo) as alone:
        print(alone.url, flush=True)
        sys.stdin.read()
