"""Whether a session is open in a client elsewhere, by the registry that clients keep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters import processes
from agentsdir.adapters.claude.opened import open_sessions

SESSION = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e01"

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs a /proc")


def write(storage: Path, entry: Any, name: str = "1.json") -> None:
    """Write an entry of the registry."""
    folder = storage / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(entry if isinstance(entry, str) else json.dumps(entry))


def ours(**fields: Any) -> dict[str, Any]:
    """Return the entry that this process would write."""
    process = processes.find(os.getpid())
    assert process is not None
    entry = {"pid": process.pid, "procStart": str(process.started), "sessionId": SESSION}
    return {**entry, **fields}


def test_a_living_client_has_its_session_open(tmp_path: Path) -> None:
    """By process id and start time."""
    write(tmp_path, ours())
    assert dict(open_sessions(tmp_path)).get(SESSION) == processes.find(os.getpid())


def test_an_older_entry_without_a_start_time_is_believed(tmp_path: Path) -> None:
    """Better to refuse than to lose answers."""
    entry = ours()
    del entry["procStart"]
    write(tmp_path, entry)
    assert dict(open_sessions(tmp_path)).get(SESSION) is not None


@pytest.mark.parametrize(
    "entry",
    [
        ours(procStart="1"),
        ours(pid=2**22 + 1),
        ours(sessionId="another"),
        ours(pid="1"),
        ours(pid=None),
        [],
        "{",
        "",
    ],
    ids=["later process", "dead", "another session", "text", "none", "list", "torn", "empty"],
)
def test_what_no_living_client_says_counts_for_nothing(tmp_path: Path, entry: Any) -> None:
    """A killed client leaves its entry behind."""
    write(tmp_path, entry)
    assert dict(open_sessions(tmp_path)).get(SESSION) is None


def test_a_damaged_entry_hides_no_other(tmp_path: Path) -> None:
    """Each stands for itself."""
    write(tmp_path, "{", "0.json")
    write(tmp_path, ours(), "1.json")
    assert dict(open_sessions(tmp_path)).get(SESSION) is not None


def test_a_client_without_a_registry_has_nothing_open(tmp_path: Path) -> None:
    """Older ones keep none."""
    assert dict(open_sessions(tmp_path)).get(SESSION) is None


def test_a_pipe_in_the_registry_hangs_no_reader(tmp_path: Path) -> None:
    """It says nothing, whichever process put it there."""
    write(tmp_path, ours(), "2.json")
    os.mkfifo(tmp_path / "sessions" / "1.json")
    assert dict(open_sessions(tmp_path)).get(SESSION) is not None
