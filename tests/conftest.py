"""An S3 on this machine, for whichever test asks for it."""

import http.client
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from corgi2.stores import Store, open_store
from tests.fault_proxy import FaultProxy

SECRET = "wJalrXUtnFEMIK7MDENG"  # noqa: S105 - of nothing


@dataclass(slots=True)
class S3:
    """A bucket of a test's own, behind a proxy that counts and breaks requests."""

    proxy: FaultProxy
    bucket: str = field(default_factory=lambda: f"bucket-{uuid.uuid4().hex}")

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/train"

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


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes that tests make on the way do not stay in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
