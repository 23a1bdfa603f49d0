"""Following a session with the reader of an adapter that another package installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentsdir.adapters.claude import ARCHITECTURE as CLAUDE
from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.engine.follow import FollowTarget
from agentsdir.formats.blocks import StreamEvent
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.findings import Finding


class Broken:
    """A follower that raises at one of its steps."""

    findings: Sequence[Finding] = ()

    def __init__(self, where: str) -> None:
        self._where = where

    def poll(self) -> Iterator[StreamEvent]:
        """Yield nothing, or raise."""
        if self._where == "poll":
            raise ValueError("odd row")
        yield from ()

    def end(self) -> Iterator[StreamEvent]:
        """Yield nothing, or exit."""
        if self._where == "end":
            raise SystemExit(0)
        yield from ()


class BrokenReader(ClaudeReader):
    """Reads as Claude's does, and raises when a session is followed."""

    where = ""

    def follow(self, main: Path, *, hidden: bool, alone: bool = False) -> Broken:  # type: ignore[override]
        """Return a broken follower, or raise."""
        if self.where == "follow":
            raise KeyError("no such key")
        return Broken(self.where)


@pytest.mark.parametrize(
    ("where", "said"),
    [("follow", "KeyError"), ("poll", "ValueError: odd row"), ("end", "SystemExit: 0")],
)
def test_a_follower_that_raises_is_an_error_that_names_the_adapter(
    tmp_path: Path, where: str, said: str
) -> None:
    """Also where it asks for an exit, which would look like success."""
    reader = BrokenReader()
    reader.where = where
    installed = CLAUDE._replace(name="tiny", reader=reader)
    follower = FollowTarget(tmp_path, lambda: (installed, reader, tmp_path)).follower(hidden=False)
    with pytest.raises(AgentsdirError, match=f"the adapter 'tiny' raised {said}") as failed:
        _ = [*follower.poll(), *follower.end()]
    assert failed.value.kind == "adapter-failed"
