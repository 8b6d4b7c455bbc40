"""A network between a client and a server of this machine: every connection is slow, and every answer comes late.

``python -m benchmarks.link PORT RATE`` listens on a free port of 127.0.0.1, prints it, and passes on what comes to PORT
in both directions: at most RATE bytes per second on each connection, and the first byte of each answer after 30 ms.
A process of its own, so that the program that is measured does not share its processor time with it.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

CONNECTION_BYTES, LATENCY = 20_000_000, 0.03
_CHUNK_BYTES = 1 << 17


class _Pace:
    """Keeps one direction of one connection to its rate."""

    def __init__(self, rate: int) -> None:
        self._free, self._rate = 0.0, rate

    async def wait(self, size: int) -> None:
        self._free = max(self._free, time.monotonic()) + size / self._rate
        await asyncio.sleep(max(0.0, self._free - time.monotonic()))


class _Connection:
    """A client, the server behind it, and whether the client waits for an answer that has not begun."""

    def __init__(self, rate: int) -> None:
        self.is_asked, self._rate = False, rate

    async def ask(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        pace = _Pace(self._rate)
        while data := await client.read(_CHUNK_BYTES):
            self.is_asked = True
            server.write(data)
            await server.drain()
            await pace.wait(len(data))
        server.write_eof()

    async def answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        pace = _Pace(self._rate)
        while data := await server.read(_CHUNK_BYTES):
            if self.is_asked:
                self.is_asked = False
                await asyncio.sleep(LATENCY)
            await pace.wait(len(data))
            client.write(data)
            await client.drain()
        client.close()


async def _serve(port: int, rate: int) -> None:
    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend, to_backend = await asyncio.open_connection("127.0.0.1", port)
        connection = _Connection(rate)
        both = connection.ask(reader, to_backend), connection.answer(backend, writer)
        await asyncio.gather(*both, return_exceptions=True)  # either side may leave at any time
        to_backend.close()
        writer.close()

    server = await asyncio.start_server(passed_on, "127.0.0.1", 0, limit=2 * _CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def slow_link(port: int, rate: int = CONNECTION_BYTES) -> Iterator[int]:
    """The port of a slow link to another port of this machine."""
    words = [sys.executable, "-m", "benchmarks.link", str(port), str(rate)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve(*map(int, sys.argv[1:3])))
