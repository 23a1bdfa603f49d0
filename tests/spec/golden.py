"""The golden agent of SPEC.md: what makes it, and what damages copies of its log.

``python tests/spec/golden.py`` writes `fixtures/golden-agent` anew, after a change of the bytes
that agentsdir writes.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.services import Services
from agentsdir.engine.settings import tag
from agentsdir.engine.slots import suspend
from agentsdir.formats import times
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import Layout

FOLDER = Path(__file__).parents[2] / "fixtures" / "golden-agent"
ROOT = FOLDER / "root"
AGENT = "tz4a98xxat96iws9zmbrgj3a"
LOG = f"agents/{AGENT}/events.jsonl"


class Fixed:
    """A clock that goes on by one second at each call, and the ids of one agent with one turn."""

    def __init__(self) -> None:
        self._seconds = 0
        self._ids = iter((AGENT, "vsr0ow0jz9pn2w8ca864ficd", "ojzg2ku6fh6fl7xaye3rop93"))

    def now(self) -> str:
        """Return the next second."""
        self._seconds += 1
        return times.to_text(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(0, self._seconds)
        )

    def agent(self) -> str:
        """Return the agent's id, its message's, or its turn's."""
        return next(self._ids)

    def session(self) -> str:
        """Return the session's id."""
        return "5f0c1a7be1b94c0f9a52d3f7e2c48d61"


def make(root: Path) -> None:
    """Make the golden agent: a name, one turn, a tag, a suspension; no locks, stamps and index."""
    fixed = Fixed()
    services = Services(Layout(root), fixed.now, lambda _: None, fixed, Disk(), lambda: None)
    paths = services.layout.agent(
        create_agent(services, NewAgent(cwd="/w", login="ada", name="fox", provider="echo"))
    )
    send(services, paths, [{"type": "text", "text": "fix the tests"}], lambda _: None)
    tag(services, paths, ["later"], [])
    suspend(services, paths)
    (root / ".gitignore").unlink()  # this repository keeps the files
    for lock in [*root.rglob(".lock"), *root.rglob(".turn"), *root.rglob("stamps.json")]:
        lock.unlink()
    (root / "index.jsonl").unlink()  # it has an inode and a time of this machine
    shutil.rmtree(root / "slots", ignore_errors=True)


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file below `root`, by relative path."""
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(found)}


TORN = b'{"seq":12,"ts":"2026-01-02T03:05:'
"""What a writer leaves that dies in the middle of a write."""


def torn_tail(log: list[bytes]) -> list[bytes]:
    """A writer died in the middle of a record."""
    return [*log, TORN]


def stub(log: list[bytes]) -> list[bytes]:
    """The next writer set that apart, and appended a record of its own."""
    return [*log, TORN + b" \n", _tagged(12, TORN + b" ")]


def changed(log: list[bytes]) -> list[bytes]:
    """A word in the middle was edited."""
    return [*log[:4], log[4].replace(b"fix the tests", b"fix two tests"), *log[5:]]


def removed(log: list[bytes]) -> list[bytes]:
    """A line was taken out of the middle."""
    return [*log[:5], *log[6:]]


def splice(log: list[bytes]) -> list[bytes]:
    """The half of a line and the whole of the next one share a line."""
    return [*log[:5], log[5][:100] + log[6], *log[7:]]


def creation_lost(log: list[bytes]) -> list[bytes]:
    """The first line lost its first byte."""
    return [log[0][1:], *log[1:]]


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "torn-tail": torn_tail,
    "stub": stub,
    "changed": changed,
    "removed": removed,
    "splice": splice,
    "creation-lost": creation_lost,
}


def _tagged(seq: int, line_before: bytes) -> bytes:
    record = {
        "seq": seq,
        "ts": "2026-01-02T03:06:00.000000Z",
        "event": "agent.tagged",
        "session_id": "5f0c1a7be1b94c0f9a52d3f7e2c48d61",
        "data": {"tags": ["later", "urgent"]},
        "prev": sha256(line_before).hexdigest()[:16],
    }
    return orjson.dumps(record) + b"\n"


def damaged_log(name: str) -> bytes:
    """Return one damaged copy of the golden log."""
    log = (ROOT / LOG).read_bytes().splitlines(keepends=True)
    return b"".join(DAMAGES[name](log))


def findings(log: bytes, root: Path) -> dict[str, bytes]:
    """Return what `inspect` and `validate` find in a copy of the golden root that has this log.

    One JSON object a line, by file name; files are named by their path in the root.
    """
    shutil.copytree(ROOT, root)
    (root / LOG).write_bytes(log)
    found = orjson.loads(run_in(root, "inspect", AGENT, "--json"))["findings"]
    problems = [orjson.loads(line) for line in run_in(root, "validate", "--json", ".").splitlines()]
    return {"inspect.jsonl": _lines(found, root), "validate.jsonl": _lines(problems, root)}


def _lines(found: list[dict[str, Any]], root: Path) -> bytes:
    for one in found:
        one["file"] = Path(root, one["file"]).relative_to(root).as_posix()
    return b"".join(orjson.dumps(one) + b"\n" for one in found)


def run_in(root: Path, *arguments: str) -> bytes:
    """Run one command in an agents directory; return what it prints."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    variables: dict[str, Any] = {"AGENTSDIR_ROOT": str(root), "AGENTSDIR_PROVIDER": "echo"}
    run(list(arguments), Environment(io.BytesIO(), out, err, variables, root, root))
    out.flush()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def write(folder: Path) -> None:
    """Write all of `fixtures/golden-agent` but its README, the damaged copies from `ROOT`."""
    for name in DAMAGES:
        place = folder / "damaged" / name
        place.mkdir(parents=True)
        log = damaged_log(name)
        (place / "events.jsonl").write_bytes(log)
        with tempfile.TemporaryDirectory() as scratch:
            for file, lines in findings(log, Path(scratch) / "root").items():
                (place / file).write_bytes(lines)


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    shutil.rmtree(FOLDER / "damaged", ignore_errors=True)
    make(ROOT)
    write(FOLDER)
