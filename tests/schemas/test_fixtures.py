"""The samples in `fixtures/valid` and `fixtures/invalid`: what they claim is what `validate` says.

``python tests/schemas/test_fixtures.py`` makes `fixtures/valid` anew, after a change of the bytes
that agentsdir writes.
"""

from __future__ import annotations

import io
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.engine.create import NewAgent, create_agent, open_root
from agentsdir.engine.dispatcher import send
from agentsdir.engine.services import Services
from agentsdir.engine.slots import resume, suspend
from agentsdir.formats import times
from agentsdir.formats.blocks import make_block
from agentsdir.formats.store.agent import create_agent_folder, write_agent
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import Layout

FIXTURES = Path(__file__).parents[2] / "fixtures"
VALID = FIXTURES / "valid"
INVALID = sorted(path for path in (FIXTURES / "invalid").iterdir() if path.is_dir())


class Counting:
    """Fixed clock and fixed ids: one second and one number on at each call."""

    def __init__(self) -> None:
        self._ids = self._seconds = 0

    def now(self) -> str:
        """Return the next second."""
        self._seconds += 1
        return times.to_text(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(0, self._seconds)
        )

    def agent(self) -> str:
        """Return the next id."""
        self._ids += 1
        return f"id{self._ids:022d}"

    def session(self) -> str:
        """Return the next session id."""
        self._ids += 1
        return f"{self._ids:08x}000040008000{self._ids:012x}"


def fixed_services(root: Path) -> Services:
    """Return services in which everything is known beforehand."""
    counting = Counting()
    return Services(Layout(root), counting.now, lambda _: None, counting, Disk(), lambda: None)


def make_minimal(root: Path) -> None:
    """Make an agents directory with one agent that never ran."""
    services = fixed_services(root)
    create_agent(services, NewAgent(kind="heartbeat", cwd="/w"))


def make_full(root: Path) -> None:
    """Make one with every kind of agent, turns, an image, a suspension and its end."""
    services = fixed_services(root)
    wanted = NewAgent(cwd="/w", login="me", name="main", system_prompt="Be brief.", profile="plain")
    parent = services.layout.agent(create_agent(services, wanted))
    image = {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}
    for content in (
        [{"type": "text", "text": "Hello, world"}],
        [{"type": "text", "text": "Was ist das? 🦀"}, image],
    ):
        send(services, parent, content, lambda _: None)
    suspend(services, parent)
    resume(services, parent)
    child = create_agent(
        services, wanted._replace(kind="subagent", parent=parent.id, name="kid", login="")
    )
    send(services, services.layout.agent(child), [{"type": "text", "text": "go"}], lambda _: None)
    suspend(services, services.layout.agent(child))
    create_agent(services, NewAgent(kind="cron", cron="nightly", cwd="/w"))
    create_agent(services, NewAgent(kind="heartbeat", cwd="/w"))


def make_future_minor(root: Path) -> None:
    """Make what a later version 1 could write: fields, kinds and files unknown today."""
    services = fixed_services(root)
    root.mkdir(parents=True)
    open_root(services)
    agent_id, session_id = services.ids.agent(), services.ids.session()
    data = {
        "agent_id": agent_id,
        "descriptor": {"type": "permanent", "id": agent_id, "systemPrompt": "Stay."},
        "provider": "echo",
        "model": "echo-1",
        "system_prompt": "",
        "profile": "",
        "cwd": "/w",
        "permission_mode": None,
        "limits": {"ticks": 3},
        "native": {"architecture": "echo", "id": "n", "cwd": "/w", "host": "h"},
        "colour": "blue",
    }
    paths = create_agent_folder(services.layout, agent_id, data, services.now(), session_id)
    block = make_block("skill_load", "b1", "main", "n", None, None, skillName="git")
    with write_agent(paths) as writer:
        writer.append("mood.changed", {"to": "cheerful"}, services.now())
        writer.append("block", {"turn_id": None, "block": block}, services.now())
        writer.append("history.reset", {"message": "again", "keep": 3}, services.now())
    for path in (services.layout.document, paths.session, paths.state):
        document = orjson.loads(path.read_bytes())
        path.write_bytes(encode_document({**document, "since": "1.7"}))
    (paths.folder / "notes.json").write_text('{"a": 1}\n')
    (services.layout.root / "settings.toml").write_text("max_slots = 4\n")


MAKERS = {"minimal": make_minimal, "full": make_full, "future-minor": make_future_minor}


def made(name: str, folder: Path) -> dict[str, bytes]:
    """Make one valid sample below `folder`; return its files by relative path.

    Locks and stamps are left out, and .gitignore: this repository keeps the samples.
    """
    root = folder / name
    MAKERS[name](root)
    (root / ".gitignore").unlink()
    for lock in [*root.rglob(".lock"), *root.rglob(".turn"), *root.rglob("stamps.json")]:
        lock.unlink()
    (root / "index.jsonl").unlink(missing_ok=True)  # it has an inode and a time of this machine
    return files_of(root)


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file below `root` by relative path."""
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(found)}


def run_validate(arguments: list[str], cwd: Path, data: bytes = b"") -> tuple[int, str, str]:
    """Run `agentsdir validate` in this process; return exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    env = Environment(io.BytesIO(data), out, err, {}, cwd, cwd)
    return run(["validate", *arguments], env), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", MAKERS)
def test_the_valid_samples_are_what_agentsdir_writes_today(name: str, tmp_path: Path) -> None:
    """Byte for byte: a change of the format on disk shows here first."""
    assert files_of(VALID / name) == made(name, tmp_path)


@pytest.mark.feature("C-09")
@pytest.mark.parametrize("sample", sorted(VALID.iterdir()), ids=lambda path: path.name)
def test_a_valid_sample_has_no_problem(sample: Path) -> None:
    """Nothing at all is said about a valid sample, and it is left as it was."""
    before = files_of(sample)

    code, out, err = run_validate([str(sample)], sample)

    assert (code, out) == (Exit.OK, "")
    assert err.startswith("agentsdir: checked: ")
    assert files_of(sample) == before


@pytest.mark.feature("C-09")
def test_what_a_later_version_added_survives(tmp_path: Path) -> None:
    """A writer goes on in a newer minor version's directory, and keeps what it does not know."""
    root = tmp_path / "future"
    shutil.copytree(VALID / "future-minor", root)
    before = files_of(root)
    services = fixed_services(root)
    (agent_id,) = services.layout.agent_ids()

    send(
        services, services.layout.agent(agent_id), [{"type": "text", "text": "hi"}], lambda _: None
    )

    after = files_of(root)
    log = f"agents/{agent_id}/events.jsonl"
    assert after[log].startswith(before[log])
    derived = {f"agents/{agent_id}/{name}.json" for name in ("session", "state")}
    derived |= {log, f"agents/{agent_id}/history.jsonl"}
    assert {name: after[name] for name in before if name not in derived} == {
        name: data for name, data in before.items() if name not in derived
    }
    assert run_validate([str(root)], root)[0] == Exit.OK


def operand(sample: Path) -> Path:
    """Return what to validate: an agents directory, or the one file beside expected.txt."""
    if (sample / "agents").is_dir() or (sample / "agentsdir.json").exists():
        return sample
    (path,) = (path for path in sample.iterdir() if path.name != "expected.txt")
    return path


@pytest.mark.feature("C-09")
@pytest.mark.parametrize("sample", INVALID, ids=lambda path: path.name)
def test_an_invalid_sample_is_refused_with_file_line_and_reason(sample: Path) -> None:
    """`validate` says exactly what expected.txt lists: ``id file:line reason``."""
    expected = [line.split(" ", 2) for line in (sample / "expected.txt").read_text().splitlines()]

    code, out, _ = run_validate([str(operand(sample)), "--json"], sample)

    problems = [orjson.loads(line) for line in out.splitlines()]
    assert code == Exit.FAILED
    assert len(problems) == len(expected), out
    for problem, (kind, place, reason) in zip(problems, expected, strict=True):
        file = Path(problem["file"]).relative_to(sample).as_posix()
        assert problem["id"] == kind
        assert place == (file if problem["line"] is None else f"{file}:{problem['line']}")
        assert reason in problem["reason"]


def test_there_are_enough_invalid_samples() -> None:
    """They are found at all, and cover the format."""
    assert len(INVALID) >= 25


if __name__ == "__main__":
    for each in MAKERS:
        shutil.rmtree(VALID / each, ignore_errors=True)
        made(each, VALID)
