"""A client that is an adapter of its own: a turn is rows that stand in its files all at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import orjson
from stub_client import published

from agentsdir.adapters.protocol import Host
from agentsdir.engine.services import ClientConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pytest

CLIENT = '''
from agentsdir.adapters.CLIENT import ARCHITECTURE as CLIENT
from agentsdir.adapters.protocol import Architecture, NativeFile
from agentsdir.formats.blocks import block_complete
from agentsdir.formats.source import Source
import orjson


def files(spec):
    """A session's files: the main transcript, and those in the folder of its name."""
    store = spec.host.home / "store"
    main = store / (spec.native_id + ".jsonl")
    children = sorted(p for p in (store / spec.native_id).rglob("*") if p.is_file())
    found = []
    for path in [main, *children] if main.exists() else []:
        role = "main" if path == main else "sidecar" if path.suffix == ".json" else "subagent"
        name = path.relative_to(store).as_posix()
        found.append(NativeFile(name, role, Source(name, path=path)))
    return found


class Session(StubSession):
    """A turn is what stands in `next`: rows for files, and blocks that are streamed.

    It notes what it is given of earlier readings.
    """

    earlier = []
    compared = []

    def send(self, content):
        store = self.spec.host.home / "store"
        self.earlier.append(self.spec.earlier())
        self.compared.append(self.spec.compared)
        for name, rows in orjson.loads((store / "next").read_bytes())["rows"].items():
            path = store / name.replace("ID", self.spec.native_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as stream:
                stream.writelines(orjson.dumps(row) + b"\\n" for row in rows)
        for block in orjson.loads((store / "next").read_bytes())["stream"]:
            yield block_complete(block["id"], block)

    def transcripts(self):
        return files(self.spec)


class Provider(StubProvider):
    def create(self, spec):
        return Session(spec)

    def native_files(self, spec):
        return files(spec)


class Reader(type(CLIENT.reader)):
    """Notes where each reading begins."""

    begins = []

    def detect(self, head, name):
        return False

    def resume(self, session, sink, reading, *, keeps=True):
        self.begins.append(reading and reading.size)
        return super().resume(session, sink, reading, keeps=keeps)


ARCHITECTURE = Architecture("rows", "rows-cli", "made by a test", Reader(), Provider())
'''


class RowsClient:
    """An agent whose client writes rows, in a root and a store of its own."""

    def __init__(self, stage: Any, folder: Path) -> None:
        self.stage = type(stage)(folder / "root")
        self.stage.client = ClientConfig(Host(folder / "home"))
        self.store = folder / "home" / "store"
        self.store.mkdir(parents=True)
        self.paths = self.stage.new(provider="rows")

    @property
    def native_id(self) -> str:
        """The session's id in the client."""
        native: str = self.stage.state(self.paths).native["id"]
        return native

    def turn(self, *rows: dict[str, Any], **more: Any) -> None:
        """Run a turn in which the client writes rows; `files` and `stream` are others' and ours."""
        found = {"ID.jsonl": list(rows), **more.get("files", {})}
        document = {"rows": found, "stream": more.get("stream", [])}
        (self.store / "next").write_bytes(orjson.dumps(document))
        assert self.stage.send(self.paths, "hi").outcome == "completed"

    def append(self, *rows: dict[str, Any]) -> None:
        """Write rows without agentsdir."""
        with (self.store / f"{self.native_id}.jsonl").open("ab") as stream:
            stream.writelines(orjson.dumps(row) + b"\n" for row in rows)


def rows_client(
    site: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> AbstractContextManager[None]:
    """Install the client as an adapter, with rows that are those of `client`."""
    code = CLIENT.replace("adapters.CLIENT", f"adapters.{client}")
    return published(site, monkeypatch, "rows", code)


def begins() -> list[int | None]:
    """Return at which byte each reading since the last call began; None for a whole one."""
    noted: list[int | None] = sys.modules["plugin_rows"].Reader.begins
    found = noted[:]
    noted.clear()
    return found


def hold_beside(one: RowsClient, other: RowsClient, turns: Iterable[Callable[[Any], None]]) -> int:
    """Play turns with an agent, and with one that reads all each time: their logs are the same.

    Return how many readings of the first one went on from its checkpoint.
    """
    read_on = 0
    for play in turns:
        play(one)
        read_on += sum(begin is not None for begin in begins())
        play(other)
        assert {None} == set(begins())
        assert one.paths.log.read_bytes() == other.paths.log.read_bytes(), play
        assert one.paths.history.read_bytes() == other.paths.history.read_bytes(), play
    return read_on
