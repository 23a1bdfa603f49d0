"""What state machines share that play with an agents directory and an index of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine

from agentsdir.engine.services import Services
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import Layout


class DirectoryMachine(RuleBasedStateMachine):
    """An agents directory of its own, and the services of an engine that works on it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.layout = Layout(Path(self.folder.name) / "root")
        self.made = 0
        self.services = Services(
            self.layout,
            lambda: "2026-01-02T03:04:05.000000Z",
            lambda _seconds: None,
            self,  # type: ignore[arg-type]
            Disk(Durability.NEVER),
            lambda: None,
        )

    def agent(self) -> str:
        """Return a fresh id; ids begin alike."""
        self.made += 1
        return f"xaaa{self.made:020}"

    def session(self) -> str:
        """Return a fresh session id."""
        self.made += 1
        return f"{self.made % 3:04x}{self.made:028x}"

    def teardown(self) -> None:
        """Remove the directory."""
        self.folder.cleanup()
