"""What may be wrong with an agent that comes from elsewhere, and a place to import it into."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import orjson

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment


class Place:
    """A working directory with an agents directory, and the command line in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run one command; return its exit code, stdout and stderr."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        variables = {"AGENTSDIR_ROOT": str(self.root)}
        source = io.BytesIO(stdin)
        env = Environment(source, out, err, variables, self.folder, self.folder, login="me")
        code = int(run(list(arguments), env))
        for stream in (out, err):
            stream.seek(0)
        return code, out.read(), err.read()

    def bundle(self) -> tuple[str, dict[str, bytes]]:
        """Return an agent's id, and the files of its bundle."""
        (self.folder / "notes.txt").write_text("a note")
        agent = self("new")[1].strip()
        self("send", agent, "hello")
        assert self("export", "--workspace", agent, "bundle")[0] == 0
        top = self.folder / "bundle"
        found = {
            path.relative_to(top).as_posix(): path.read_bytes()
            for path in sorted(top.rglob("*"))
            if path.is_file()
        }
        self("rm", "--yes", agent)
        return agent, found

    def refuses(self, data: bytes) -> str:
        """Import bytes that must be refused without a trace; return the error's message."""
        (self.folder / "hostile.tar").write_bytes(data)
        before = self.tree()
        code, out, err = self("import", "--json", "hostile.tar")
        error = orjson.loads(err)
        assert (code, out, error["kind"]) in [(12, "", "bad-bundle"), (12, "", "unknown-version")]
        after = self.tree()
        assert {path for path in after if path not in before} <= {"root/.lock"}
        assert {path: data for path, data in after.items() if path in before} == before
        return str(error["message"])

    def tree(self) -> dict[str, bytes]:
        """Return all files and links of the folder."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes() if path.is_file() else b""
            for path in self.folder.rglob("*")
        }


NAMES = [
    "/etc/cron.d/x", "../x", "agents/../../x", "a//b", "./a", "a/.", "a\\b", "a\nb", "", "/",
    "x/" * 40 + "x", "y" * 300, "a/..", "..",
]  # fmt: skip


Change = Callable[[str, dict[str, bytes]], dict[str, bytes]]


def without_agent(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """No agent at all."""
    return {name: data for name, data in found.items() if agent not in name}


def two_agents(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """Two of them."""
    other = {name.replace(agent, "b" * 24): data for name, data in found.items()}
    return {**found, **other}


def odd_id(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A folder whose name is another than the agent's id."""
    return {name.replace(agent, "b" * 24): data for name, data in found.items()}


def newer(_agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A version that no release knows."""
    return {**found, "agentsdir.json": b'{"format":"agentsdir","version":2,"features":[]}'}


def featured(_agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A feature that no release knows."""
    return {**found, "agentsdir.json": b'{"format":"agentsdir","version":1,"features":["x"]}'}


def no_document(_agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """No agentsdir.json."""
    return {name: data for name, data in found.items() if name != "agentsdir.json"}


def changed_log(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A log in which a word was changed."""
    name = f"agents/{agent}/events.jsonl"
    return {**found, name: found[name].replace(b"hello", b"hallo", 1)}


def headless_log(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A log without its first record."""
    name = f"agents/{agent}/events.jsonl"
    return {**found, name: found[name].partition(b"\n")[2]}


def no_log(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """An agent without a log."""
    return {name: data for name, data in found.items() if not name.endswith("events.jsonl")}


def changed_transcript(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A transcript that is not what the log says."""
    return {
        name: data.replace(b"hello", b"hallo") if "/transcripts/" in name else data
        for name, data in found.items()
        if agent
    }


def changed_state(agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """Derived files that say something else."""
    name = f"agents/{agent}/history.jsonl"
    return {**found, name: found[name].replace(b"hello", b"hallo")}


def changed_blob(_agent: str, found: dict[str, bytes]) -> dict[str, bytes]:
    """A captured file that is not what its name says."""
    return {name: b"evil" if "/blobs/" in name else data for name, data in found.items()}


CHANGES = [
    without_agent, two_agents, odd_id, newer, featured, no_document, changed_log, headless_log,
    no_log, changed_transcript, changed_state, changed_blob,
]  # fmt: skip
