"""Where the data of a trial lies: a folder of this machine, or an S3 server that can be killed; and a Ray cluster."""

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.chaos.census import Files
from corgi2.stores.opening import open_store
from corgi2.stores.store import Options, Store, read_object


class Place(Protocol):
    """A source and a target; in place, the target is the source."""

    @property
    def source(self) -> str:
        """As the command takes it."""

    @property
    def target(self) -> str:
        """As the command takes it."""

    @property
    def aside(self) -> str:
        """Where held-out records go."""

    @property
    def options(self) -> Options | None:
        """Of the store."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to know."""

    def put(self, source: Files, target: Files) -> None:
        """As it is before the first run."""

    def files(self, which: str = "target") -> dict[str, bytes]:
        """All that lies there."""

    def has(self, path: str) -> bool:
        """Whether the target has a file of this name."""


@dataclass(frozen=True, slots=True)
class Folder:
    """On this machine."""

    root: Path
    options: Options | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return str(self.root / "in")

    @property
    def target(self) -> str:
        return str(self.root / "out")

    @property
    def aside(self) -> str:
        return str(self.root / "val")

    def put(self, source: Files, target: Files) -> None:
        for folder, files in ((self.source, source), (self.target, target), (self.aside, {})):
            shutil.rmtree(folder, ignore_errors=True)
            for path, data in files.items():
                Path(folder).mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(data)

    def files(self, which: str = "target") -> dict[str, bytes]:
        folder = Path({"target": self.target, "source": self.source, "aside": self.aside}[which])
        found = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def has(self, path: str) -> bool:
        return Path(self.target, path).exists()


class Server:
    """SeaweedFS, killed and begun again with what it had."""

    def __init__(self, folder: Path) -> None:
        from tests.conftest import free_ports

        folder.mkdir(parents=True)
        self._folder, self._ports, self._stack = folder, free_ports(8), ExitStack()
        self.port = self._ports[6]
        self._is_up = False

    def kill(self) -> None:
        self._is_up = False
        self._stack.close()

    def begin(self) -> None:
        """Unless it is up."""
        from tests.conftest import weed_server

        if not self._is_up:
            self._stack.enter_context(weed_server(self._folder, self._ports))
            self._is_up = True


@dataclass(frozen=True, slots=True)
class Bucket:
    """On a server."""

    server: Server
    name: str

    @property
    def source(self) -> str:
        return f"s3://bucket/{self.name}/in"

    @property
    def target(self) -> str:
        return f"s3://bucket/{self.name}/out"

    @property
    def aside(self) -> str:
        return f"s3://bucket/{self.name}/val"

    @property
    def options(self) -> Options:
        keys = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "of-nothing", "region": "us-east-1"}
        return {"endpoint": f"http://127.0.0.1:{self.server.port}", "timeout": "5", **keys}

    @property
    def environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "of-nothing", "AWS_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}", **keys}

    def put(self, source: Files, target: Files) -> None:
        for url, files in ((self.source, source), (self.target, target), (self.aside, {})):
            store = self._store(url)
            for entry in store.list():
                store.delete(entry.path)
            for path, data in files.items():
                store.publish(path, [data])

    def files(self, which: str = "target") -> dict[str, bytes]:
        store = self._store({"target": self.target, "source": self.source, "aside": self.aside}[which])
        return {entry.path: bytes(read_object(store, entry)) for entry in store.list()}

    def has(self, path: str) -> bool:
        return self._store(self.target).head(path) is not None

    def _store(self, url: str) -> Store:
        return open_store(url, self.options)


_NODE: dict[str, Any] = {
    "num_cpus": 2,
    "memory": 2_000_000_000,
    "object_store_memory": 100_000_000,
    "node_ip_address": "127.0.0.1",
}


class RayCluster:
    """Of two nodes, and one more that can be killed. Ray ends them with this process."""

    def __init__(self) -> None:
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # 127.0.0.1 only
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        self._cluster = Cluster(initialize_head=True, head_node_args={**_NODE, "include_dashboard": False})
        self._cluster.add_node(**_NODE)
        self._doomed: Any = None
        self.address: str = self._cluster.address
        if not self.address.startswith("127.0.0.1:"):
            raise RuntimeError(f"the cluster listens at {self.address}")

    def grow(self) -> None:
        """Add a node that can be killed, unless there is one."""
        self._doomed = self._doomed or self._cluster.add_node(**_NODE)

    def kill_node(self) -> None:
        if self._doomed:
            self._cluster.remove_node(self._doomed, allow_graceful=False)
            self._doomed = None

    def end(self) -> None:
        self._cluster.shutdown()  # type: ignore[no-untyped-call]
