"""An HTTP server that passes every request on to another and keeps what it was sent: who asks, asks nothing else."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.models.chat.server import Reply, Running, Seen, serving

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def recording(url: str) -> Iterator[Running]:
    """A server in front of the endpoint at `url`, which ends with /v1; its own `url` stands in for it.

    What was sent lies in `seen`: path, headers and body, byte for byte.
    """
    with serving(lambda seen, count: _pass_on(url, seen)) as running:
        yield running


def _pass_on(url: str, seen: Seen) -> Reply:
    headers = {name: seen.headers[name] for name in ("content-type", "authorization") if name in seen.headers}
    request = urllib.request.Request(url + seen.path.removeprefix("/v1"), seen.body, headers)
    try:
        with _DIRECT.open(request, timeout=60) as reply:
            return Reply(reply.status, reply.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read())
    except OSError:
        return Reply(502, {"error": {"message": "It is not there."}})
