"""A log that the system lets no process shorten: `chattr +a`, as careful people set it."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from console import Console
from machine import need
from mounted import Ext4

from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout


class Stage:
    """An agent whose log may only be appended to."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.console = Console(root, folder)
        self.agent = self.console.new()
        self.console.ok("send", self.agent, "hello")
        self.log = self.console.log(self.agent)

    def guard(self, sign: str) -> None:
        """Set the attribute (`+`) or take it away (`-`)."""
        subprocess.run(["chattr", f"{sign}a", str(self.log)], check=True, timeout=60)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on an ext4, which knows the attribute."""
    need("root", "ext4", "chattr")
    with Ext4(tmp_path) as disk:
        stage = Stage(tmp_path, disk.root / "root")
        stage.guard("+")
        try:
            yield stage
        finally:
            stage.guard("-")


def test_everything_works_on_a_log_that_may_only_be_appended_to(stage: Stage) -> None:
    """The log is never rewritten, so no command needs the right to."""
    with pytest.raises(PermissionError), stage.log.open("r+b") as stream:
        stream.truncate(0)
    console, agent = stage.console, stage.agent
    console.ok("send", agent, "again")
    console.ok("suspend", agent)
    console.ok("resume", agent)
    console.ok("restore")
    console.ok("send", agent, "and again")
    assert console.problems() == []
    assert console.replayed(agent)[::2] == ["hello", "again", "and again"]


@pytest.mark.parametrize("room", [1, 60, 1000], ids="{} bytes fit".format)
def test_a_stub_that_cannot_be_cut_off_is_said_to_stand_there_and_isolated(
    stage: Stage, room: int
) -> None:
    """A write is cut short, the truncation is refused: exit 15, and the next turn is whole."""
    console, agent = stage.console, stage.agent
    before = stage.log.read_bytes()
    size = len(before) + room
    prompt = "word " * 300
    done = console.process(
        "send",
        agent,
        prompt,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    assert (done.code, done.quiet) == (15, True), done
    assert "stub" in done.err
    assert stage.log.read_bytes()[: len(before)] == before
    assert len(stage.log.read_bytes()) == size
    reading = read_agent(Layout(console.root).agent(agent), whole=True)
    assert [finding.id for finding in reading.findings] == ["torn-tail"]
    sent = console("send", agent, prompt)
    assert (sent.code, sent.out) == (0, prompt + "\n"), sent
    found = read_agent(Layout(console.root).agent(agent), whole=True).findings
    assert [finding.id for finding in found] == ["stub"]
    assert console.replayed(agent) == ["hello", "hello", prompt, prompt]
    assert console("restore").code == 0
    assert console.problems() == []
