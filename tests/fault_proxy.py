"""An HTTP server of our own before an S3: it counts what passes, and breaks what it is told to break.

``inject(Fault(...), times=3)`` breaks the next three requests, one queue for all threads; ``inject_randomly`` breaks
each with a probability. A request that is broken before its answer never reaches the backend, or, with
``after=True``, does reach it, and only the answer is lost.
"""

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from corgi2.stores.store import Requests

_HOP_BY_HOP = {"connection", "transfer-encoding", "server", "date", "content-length"}


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do to a request: answer with a status, break the answer amid its body, or send nothing for a while."""

    kind: Literal["status", "reset", "truncate", "hang", "stall", "latency"]
    status: int = 503
    seconds: float = 0.0
    method: str = ""
    body: bytes = b""
    after: bool = False

    def answer(self) -> bytes:
        return self.body or f"<Error><Code>Fault</Code><Message>Injected\n {self.status}</Message></Error>".encode()


class FaultProxy:
    """Listens on a free port of 127.0.0.1 until ``stop``."""

    def __init__(self, backend_port: int) -> None:
        self.backend_port = backend_port
        self.seen: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.bytes_a_second: float | None = None
        """Of one answer, if it is limited."""
        self.drops: set[str] = set()
        """Headers that do not reach the backend, as if it did not know them."""
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._queue: deque[Fault] = deque()
        self._random: tuple[random.Random, float, Fault] | None = None
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def inject(self, fault: Fault, times: int = 1) -> None:
        self._queue.extend([fault] * times)

    def inject_randomly(self, fault: Fault, probability: float, seed: int) -> None:
        self._random = random.Random(seed), probability, fault

    def begin(self) -> None:
        """Count one more request that is on its way."""
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)

    def end(self) -> None:
        with self._lock:
            self.at_once -= 1

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, method: str) -> int:
        return Counter(method for method, _ in self.seen)[method]

    def requests(self) -> Requests:
        """What was seen, counted as a store counts."""
        kinds = Counter(_kind(method, path) for method, path in self.seen)
        return Requests(**kinds)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.seen.append((method, path))
            if self._queue and self._queue[0].method in ("", method):
                return self._queue.popleft()
            if self._random is not None:
                generator, probability, fault = self._random
                return fault if generator.random() < probability else None
            return None


def _kind(method: str, path: str) -> str:
    query = path.partition("?")[2]
    if method == "HEAD" or (method == "GET" and "list-type" in query):
        return "lists"
    if method == "DELETE" or query.startswith("delete"):
        return "deletes"
    return "reads" if method == "GET" else "writes"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: "FaultProxy") -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no fault of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _pass(self) -> None:
        self._is_counted = True
        self.server.proxy.begin()
        try:
            self._pass_on()
        finally:
            self._end()

    def _end(self) -> None:
        """Before the last bytes go: a client that has them may send its next request at once."""
        if self._is_counted:
            self._is_counted = False
            self.server.proxy.end()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.proxy.headers.append({key.lower(): value for key, value in self.headers.items()})
        fault = self.server.proxy.next_fault(self.command, self.path) or Fault("latency")
        if fault.kind in ("latency", "stall"):
            self.server.proxy.stopping.wait(fault.seconds)
        if fault.kind == "status" and not fault.after:
            self._send(fault.status, [], fault.answer())
            return
        status, headers, data = self._ask_backend(body)
        if fault.kind == "status":
            self._send(fault.status, [], fault.answer())
        elif fault.kind in ("reset", "truncate", "hang"):
            self._send(status, headers, data, len(data) // 2)
            self._break(fault)
        else:
            self._send(status, headers, data)

    def _break(self, fault: Fault) -> None:
        if fault.kind == "hang":
            self.server.proxy.stopping.wait(fault.seconds)
        if fault.kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _ask_backend(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        port = self.server.proxy.backend_port
        backend = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        dropped = _HOP_BY_HOP | self.server.proxy.drops
        headers = {key: value for key, value in self.headers.items() if key.lower() not in dropped}
        headers |= {"Date": self.headers["Date"]} if "Date" in self.headers else {}
        backend.request(self.command, self.path, body, headers)
        with backend.getresponse() as answer:
            data = answer.read()
        backend.close()
        return answer.status, answer.getheaders(), data

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, sent: int | None = None) -> None:
        length = next((value for key, value in headers if key.lower() == "content-length"), str(len(data)))
        self.send_response(status)
        for key, value in headers:
            if key.lower() not in _HOP_BY_HOP:
                self.send_header(key, value)
        self.send_header("Content-Length", length)
        if self.command == "HEAD" or not data:
            self._end()
        self.end_headers()
        if self.command != "HEAD":
            self._write(data[:sent])

    def _write(self, data: bytes) -> None:
        rate = self.server.proxy.bytes_a_second
        step = len(data) or 1 if rate is None else max(1, int(rate * 0.02))
        for at in range(0, len(data), step):
            if at + step >= len(data):
                self._end()
            self.wfile.write(data[at : at + step])
            if rate is not None:
                time.sleep(len(data[at : at + step]) / rate)

    def log_message(self, *args: object) -> None:
        pass

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815
