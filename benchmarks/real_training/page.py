"""The ranks as a page that Prometheus scrapes, with the names of node_exporter and cAdvisor and a label ``machine``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from record import HOST_BYTES, Recorder

__all__ = ["serve"]

#: Ours -> (name, more labels, type).
SERIES = {
    "received_bytes": ("node_network_receive_bytes_total", ',device="eth0"', "counter"),
    "sent_bytes": ("node_network_transmit_bytes_total", ',device="eth0"', "counter"),
    "received_packets": ("node_network_receive_packets_total", ',device="eth0"', "counter"),
    "sent_packets": ("node_network_transmit_packets_total", ',device="eth0"', "counter"),
    "retransmits": ("node_netstat_Tcp_RetransSegs", "", "counter"),
    "disk_read": ("node_disk_read_bytes_total", ',device="disk"', "counter"),
    "disk_written": ("node_disk_written_bytes_total", ',device="disk"', "counter"),
    "cpu_waiting": ("node_pressure_cpu_waiting_seconds_total", "", "counter"),
    "io_waiting": ("node_pressure_io_waiting_seconds_total", "", "counter"),
    "memory_waiting": ("node_pressure_memory_waiting_seconds_total", "", "counter"),
    "throttled_periods": ("container_cpu_cfs_throttled_periods_total", "", "counter"),
    "throttled_time": ("container_cpu_cfs_throttled_seconds_total", "", "counter"),
    "memory_bytes": ("process_resident_memory_bytes", "", "gauge"),
}


def _lines(recorder: Recorder) -> Iterator[str]:
    counters, idle = recorder.latest()
    cpu = "node_cpu_seconds_total"
    yield f"# TYPE {cpu} counter"
    for machine, values in counters.items():
        modes = {"user": values["cpu_user"], "system": values["cpu_system"], "idle": idle[machine]}
        for mode, seconds in modes.items():
            yield f'{cpu}{{machine="{machine}",cpu="0",mode="{mode}"}} {seconds!r}'
    for ours, (name, labels, kind) in SERIES.items():
        yield f"# TYPE {name} {kind}"
        for machine, values in counters.items():
            if ours in values:
                yield f'{name}{{machine="{machine}"{labels}}} {values[ours]!r}'
    for name in ("node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"):
        yield f"# TYPE {name} gauge"
        for machine, values in counters.items():
            used = values["memory_bytes"] if "Available" in name else 0.0
            yield f'{name}{{machine="{machine}"}} {HOST_BYTES - used!r}'


def serve(recorder: Recorder, port: int) -> ThreadingHTTPServer:
    """Serve ``/metrics`` on 127.0.0.1 in a thread; port 0 takes a free one (``server_port``)."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = ("\n".join(_lines(recorder)) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not worth a line."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
