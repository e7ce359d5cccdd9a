#!/usr/bin/env bash
# fsspec 2026.9.0 (aiohttp 3.14.5): of a server that answers 401, 403, 429 or 503, `info` and `open` of the file system
# "http" say FileNotFoundError and `exists` says False, as of 404; `cat` tells them apart. So a table for which
# credentials are missing, or whose server is busy, looks deleted; the status stands in the error's cause alone.
# Seen: every status: info FileNotFoundError, open FileNotFoundError, exists False; the causes have their statuses.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet fsspec==2026.9.0 aiohttp==3.14.5
cat > ask.py <<'EOF'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def told(ask, address):
    try:
        ask(address)
    except Exception as error:
        return type(error).__name__, getattr(error.__cause__, "status", None)


server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
files = fsspec.filesystem("http")
for status in (401, 403, 404, 429, 503):
    address = f"http://127.0.0.1:{server.server_port}/{status}"
    seen = told(files.info, address), told(files.open, address), files.exists(address)
    print(status, *seen)
    assert seen == (("FileNotFoundError", status), ("FileNotFoundError", status), False)
    assert status == 404 or told(files.cat, address)[0] == "ClientResponseError"
EOF
env/bin/python ask.py
