"""An S3 on this machine, for whichever test asks for it."""

import http.client
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.chaos.leash import leashed

from corgi2.stores.opening import open_store
from corgi2.stores.store import Store
from tests.fault_proxy import FaultProxy

SECRET = "wJalrXUtnFEMIK7MDENG"  # noqa: S105 - of nothing


@dataclass(slots=True)
class S3:
    """A bucket of a test's own, behind a proxy that counts and breaks requests."""

    proxy: FaultProxy
    bucket: str = field(default_factory=lambda: f"bucket-{uuid.uuid4().hex}")
    folder: str = "train"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.folder}"

    @property
    def options(self) -> dict[str, object]:
        endpoint = f"http://127.0.0.1:{self.proxy.port}"
        keys = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET, "region": "us-east-1"}
        return {"endpoint": endpoint, "timeout": 5, **keys}

    def store(self, **options: object) -> Store:
        return open_store(self.url, self.options | options)

    def keep_versions(self) -> None:
        """From now on, what is deleted or replaced stays as an old version."""
        self.raw("PUT", "?versioning", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")

    def raw(self, method: str, path: str = "", body: bytes = b"") -> str:
        """A request past the proxy, uncounted: ``raw("GET", "?uploads")`` lists unfinished uploads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.backend_port, timeout=60)
        connection.request(method, f"/{self.bucket}{path}", body)
        text = connection.getresponse().read().decode(errors="replace")
        connection.close()
        return text


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def s3(moto_port: int) -> Iterator[S3]:
    bucket = S3(FaultProxy(moto_port))
    bucket.raw("PUT")
    yield bucket
    bucket.proxy.stop()


@contextmanager
def weed_server(folder: Path, ports: Sequence[int] = ()) -> Iterator[int]:
    """SeaweedFS, a real S3 server, on this machine, with a bucket named so; its port. It is killed in the end, and goes
    on where it was when it is begun again with the same folder and ports."""
    ports = ports or free_ports(8)
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    flags = [f"-{name}={port}" for name, port in zip((*names, "s3.port", "s3.port.grpc"), ports, strict=True)]
    flags += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer", f"-dir={folder}", "-volume.max=60"]
    flags += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=256"]
    flags += ["-master.electionTimeout=1s"]  # begun again, it waits for others so long
    with _server(["weed", "-logtostderr=true", "server", *flags], ports[6], folder / "log"):
        _until(lambda: _status("PUT", ports[6], "/bucket") in (200, 409))
        _until(lambda: _status("PUT", ports[6], "/bucket/ready") == 200)
        yield ports[6]


@pytest.fixture(scope="session")
def weed_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with weed_server(tmp_path_factory.mktemp("weed")) as port:
        yield port


@pytest.fixture
def weed(weed_port: int) -> Iterator[S3]:
    bucket = S3(FaultProxy(weed_port), "bucket", uuid.uuid4().hex)  # a bucket takes volumes, of which there are few
    yield bucket
    bucket.proxy.stop()


@pytest.fixture(scope="module")
def juice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """JuiceFS's gateway, which ignores conditions on writes and does not say so."""
    folder, (port, metrics) = tmp_path_factory.mktemp("juice"), free_ports(2)
    meta, name = f"sqlite3://{folder}/meta.db", "bucket"
    make = ["juicefs", "format", "--storage", "file", "--bucket", f"{folder}/data/", "--trash-days", "0", meta, name]
    subprocess.run([_command(make[0]), *make[1:]], check=True, capture_output=True)
    flags = ["--no-usage-report", "--no-banner", "--cache-dir", str(folder / "cache")]
    flags += ["--metrics", f"127.0.0.1:{metrics}", meta, f"127.0.0.1:{port}"]
    keys = {"MINIO_ROOT_USER": "AKIDEXAMPLE", "MINIO_ROOT_PASSWORD": SECRET}
    with _server(["juicefs", "--no-agent", "gateway", *flags], port, folder / "log", keys):
        bucket = S3(FaultProxy(port), name)
        yield bucket
        bucket.proxy.stop()


def _command(name: str) -> str:
    """A program that lies beside this Python."""
    return str(Path(sys.executable).parent / name)


@contextmanager
def _server(
    words: list[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A server that answers on a port of 127.0.0.1, and is stopped in the end."""
    with log.open("ab") as output:
        settings = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        settings |= dict(environment or {})
        command = leashed([_command(words[0]), *words[1:]])
        process = subprocess.Popen(command, stdout=output, stderr=output, env=settings)
    try:
        _until(lambda: process.poll() is not None or 0 < _status("GET", port, "/") < 500)
        assert process.poll() is None, log.read_text()[-2000:]
        yield process
    finally:
        process.kill()
        process.wait()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.1)


def _status(method: str, port: int, path: str) -> int:
    """Of an answer; 0 where there is none."""
    with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request(method, path, b"")
        with connection.getresponse() as answer:
            return answer.status
    return 0


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes that tests make on the way do not stay in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
