"""Makes an agents directory with many agents of one turn: agent_root.py ROOT [AGENTS].

The first agent is made by the commands `new`, `send` and `suspend`. Each other one is a copy of its
files with other ids and another name, all as long as they were, so that every size stays as it was.
What depends on the bytes is computed again: hashes of transcripts, the chain of the log, the digest
of state.json. Each is left in order, by its stamps. A test has `validate` look at the result.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agentsdir.formats.store import stamps
from agentsdir.formats.store.layout import Layout

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
PROMPT = "how are you today"
LOCAL = ("stamps.json",)
"""Files that describe the inode they were made for, and are derived: a copy has none of them."""
_PREV = re.compile(rb'"prev":"[0-9a-f]{16}"')
_DIGEST = b',\n  "digest": "%s"\n}\n'


class Agent(NamedTuple):
    """The values that differ from agent to agent."""

    agent_id: str
    session_id: str
    name: str


def agent(number: int) -> Agent:
    """Return the identity of an agent of such a directory; number 0 has another one."""
    digest = sha256(b"%d" % number).hexdigest()
    letters = digest[:23].translate(str.maketrans("01234567", "ghijklmn"))
    session = digest[32:44] + "4" + digest[45:48] + "a" + digest[49:64]
    return Agent("a" + letters, session, f"agent-{number:06}")


def make_root(root: Path, agents: int) -> None:
    """Make the directory, in which `agents` suspended agents of `echo` stand."""
    root.mkdir(mode=0o700, parents=True)
    _write(root, {"settings.toml": b'durability = "never"\n'})
    first_id = _agentsdir(root, "new", "--name", agent(0).name).strip()
    _agentsdir(root, "send", first_id, PROMPT)
    _agentsdir(root, "suspend", first_id)
    folder = root / "agents" / first_id
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in LOCAL
    }
    session_id = next(
        line.split('"')[3] for line in (folder / "session.json").read_text().splitlines()[1:]
    )
    first = Agent(first_id, session_id, agent(0).name)
    for number in range(1, agents):
        other = agent(number)
        _write(root / "agents" / other.agent_id, _copy(files, first, other))
    for paths in Layout(root).every_agent():
        stamps.leave(paths, paths.log.stat().st_size, paths.history.stat().st_size)
    # It has that name already; a command that holds the create lock makes an index that is missing.
    _agentsdir(root, "rename", first_id, agent(0).name)


def _agentsdir(root: Path, *arguments: str) -> str:
    command = [AGENTSDIR, "--root", str(root), *arguments]
    return subprocess.run(
        command, env={**os.environ, "HOME": str(root)}, check=True, capture_output=True, text=True
    ).stdout


def _copy(files: dict[str, bytes], first: Agent, other: Agent) -> dict[str, bytes]:
    """Return the files of one agent as those of another one."""
    pairs = [*zip(first, other, strict=True), (dashed(first.session_id), dashed(other.session_id))]
    swaps = [(old.encode(), new.encode()) for old, new in pairs]
    made: dict[str, bytes] = {}
    hashes: list[tuple[bytes, bytes]] = []
    for path, data in files.items():
        new = _swap(data, swaps)
        made[_swap(path.encode(), swaps).decode()] = new
        if path.startswith("transcripts/"):
            hashes.append((_hash(data), _hash(new)))
    made = {path: _swap(data, hashes) for path, data in made.items()}
    last = _hash(files["events.jsonl"].splitlines()[-1])[:16]
    made["events.jsonl"] = _chained(made["events.jsonl"])
    line = _hash(made["events.jsonl"].splitlines()[-1])[:16]
    said = made["state.json"].replace(last, line)[: -len(_DIGEST) - 14] + b"\n}\n"
    made["state.json"] = said[:-3] + _DIGEST % _hash(said)[:16]
    return made


def dashed(session_id: str) -> str:
    """Return a session id as a client writes it."""
    return re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", session_id)


def _swap(data: bytes, swaps: list[tuple[bytes, bytes]]) -> bytes:
    for old, new in swaps:
        data = data.replace(old, new)
    return data


def _hash(data: bytes) -> bytes:
    return sha256(data).hexdigest().encode()


def _chained(log: bytes) -> bytes:
    """Return a log whose lines have changed with the right hash of the line before in each."""
    lines = log.splitlines()
    for at in range(1, len(lines)):
        prev = b'"prev":"%s"' % _hash(lines[at - 1])[:16]
        lines[at] = _PREV.sub(prev, lines[at])
    return b"\n".join(lines) + b"\n"


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        place = folder / path
        if not place.parent.is_dir():
            place.parent.mkdir(mode=0o700)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, data)
        os.close(descriptor)


if __name__ == "__main__":
    make_root(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
