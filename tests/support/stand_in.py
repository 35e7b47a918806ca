"""A scripted HTTP server on a free port of this host: the stand-in for stores that misbehave.

A folder's conftest takes the fixtures from here.
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    form: dict[str, str]
    headers: dict[str, str]


@dataclass
class Reply:
    """One answer; a body that is no bytes is sent as JSON."""

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    """So many bytes fewer are sent than announced."""
    wait: threading.Event | None = None
    """Answer only once this is set."""


class StandIn:
    """The server: ``url``, what was ``asked``, and the ``script`` it plays."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.script: Callable[[Asked], Reply] = lambda _: Reply(404)

    def play(self, *replies: Reply) -> None:
        """Give these answers in order; the last one for ever after."""
        left = list(replies)
        self.script = lambda _: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            path, _, query = self.path.partition("?")
            form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode() or query))
            asked = Asked(self.command, path, form, {name.lower(): text for name, text in self.headers.items()})
            with lock:
                server.asked.append(asked)
                reply = server.script(asked)
            if reply.wait is not None:
                reply.wait.wait(10)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            try:
                self.send_response(reply.status)
                kind = "application/octet-stream" if isinstance(reply.body, bytes) else "application/json"
                for name, text in ({"Content-Type": kind} | reply.headers).items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(body) + reply.cut))
                self.end_headers()
                self.wfile.write(body)
                if reply.cut:
                    self.close_connection = True
            except OSError:
                self.close_connection = True

        do_GET = do_POST = answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: Any) -> None:
            """Keep the test output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server = StandIn(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()


@pytest.fixture
def reply() -> type[Reply]:
    return Reply


@pytest.fixture
def matrix() -> Callable[..., dict[str, Any]]:
    """A successful range answer: ``matrix({"instance": "a"}, [(0, 1.5), ...], ..., warnings=[...])``."""

    def make(*series: Any, **more: Any) -> dict[str, Any]:
        result = [
            {"metric": labels, "values": [[at, repr(float(value))] for at, value in samples]}
            for labels, samples in zip(series[::2], series[1::2], strict=True)
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}} | more

    return make
