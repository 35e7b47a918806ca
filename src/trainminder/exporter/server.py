"""The live pages over HTTP: one path for each machine, and the list of them for Prometheus to discover."""

from __future__ import annotations

import json
import logging
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from trainminder.clock import Clock
from trainminder.errors import SettingsError
from trainminder.exporter.live import LiveTask
from trainminder.exporter.page import metrics_page

__all__ = ["ExporterServer"]

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

INDEX = """A simulated training task. For a Prometheus:

scrape_configs:
- job_name: simulated
  scrape_interval: 1s
  http_sd_configs: [{{url: 'http://{address}/targets'}}]

/targets    all machines, for HTTP service discovery
{paths}
"""


class ExporterServer(ThreadingHTTPServer):
    """Serves a live task until it is shut down; the task's first second is the moment of its making.

    Args:
        host, port: where to listen; port 0 takes a free one.
    Raises:
        SettingsError: nobody can listen there.
    """

    daemon_threads = True

    def __init__(self, live: LiveTask, host: str, port: int, clock: Clock) -> None:
        self.live, self.clock = live, clock
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise SettingsError(
                f"--host {host} --port {port}: cannot listen there: {error.strerror}: choose another with --port"
            ) from error
        self.begun_at = clock.now()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), ConnectionError):
            return  # a scrape that timed out has gone
        super().handle_error(request, client_address)

    @property
    def authority(self) -> str:
        """``host:port`` that it listens on."""
        host, port = self.server_address[0], self.server_address[1]
        return f"[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"{host!s}:{port}"


class _Handler(BaseHTTPRequestHandler):
    server: ExporterServer
    # Prometheus keeps its connections.
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        # Under the name by which it was reached: from a container that is another one.
        address = self.headers.get("Host") or self.server.authority
        live = self.server.live
        if path == "/":
            self._answer(INDEX.format(address=address, paths="\n".join(f"/{name}/metrics" for name in live.machines)))
        elif path == "/targets":
            self._answer(json.dumps(_targets(live, address)), "application/json")
        elif path.endswith("/metrics") and (machine := path[1 : -len("/metrics")]) in live.machines:
            self._show(machine)
        else:
            self._answer(f"{path} is not here: the machines are listed at /targets\n", status=404)

    def _show(self, machine: str) -> None:
        second = self.server.clock.now() - self.server.begun_at
        readings = self.server.live.read(machine, max(0.0, second))
        if not readings:
            # A machine that cannot be reached says nothing at all.
            self.close_connection = True
            return
        self._answer(metrics_page(machine, readings, second, self.server.begun_at), TEXT_FORMAT)

    def _answer(self, text: str, kind: str = "text/plain; charset=utf-8", status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        logging.getLogger(__name__).debug(format, *args)


def _targets(live: LiveTask, address: str) -> list[dict[str, object]]:
    """In the form of Prometheus' HTTP service discovery."""
    return [
        {
            "targets": [address],
            "labels": {"__metrics_path__": f"/{machine}/metrics", "instance": machine, "task": live.spec.task},
        }
        for machine in live.machines
    ]
