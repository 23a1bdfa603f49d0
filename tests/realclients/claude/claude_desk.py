"""A desk with the real Claude Code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from claude_api import ClaudeApi
from desk import Desk


class ClaudeDesk(Desk[ClaudeApi]):
    """A home in which Claude Code has its store."""

    provider = "claude"
    address = "ANTHROPIC_BASE_URL"
    quiet_client = {  # noqa: RUF012, it stays as it is
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "CLAUDE_CODE_OVERLOADED_RETRY_BASE_DELAY_MS": "20",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_BUG_COMMAND": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
    }

    store = property(lambda self: self.home / ".claude")

    def prepare(self) -> None:
        """Let tools run unasked."""
        self.configure(permission_mode="bypassPermissions")

    @property
    def environment(self) -> dict[str, str]:
        """Return the whole environment of the user's shell."""
        return {"CLAUDE_CODE_TMPDIR": str(self.temporary), **super().environment}

    @property
    def words(self) -> dict[str, Any]:
        """Where the files are that it works with: its tools want whole paths."""
        return {"cwd": self.work}

    def by_hand_command(self, native: str, prompt: str, *, fresh: bool) -> list[str]:
        """Return how the client's user begins or resumes a session with a prompt."""
        opening = "--session-id" if fresh else "--resume"
        return ["-p", prompt, opening, native, "--dangerously-skip-permissions"]

    def transcript(self, native: str) -> Path:
        """Return the client's own main transcript."""
        (path,) = self.store.glob(f"projects/*/{native}.jsonl")
        return path

    def native_files(self, native: str) -> dict[str, bytes]:
        """Return what the client has of a session, by path in its project's folder."""
        main = self.transcript(native)
        beside = [path for path in main.with_suffix("").rglob("*") if path.is_file()]
        return {
            path.relative_to(main.parent).as_posix(): path.read_bytes() for path in (main, *beside)
        }

    def stored_files(self, agent: str) -> dict[str, bytes]:
        """Return the same of what the agent's folder has.

        An agent that moved keeps the name of the project's folder in which it began.
        """
        (folder,) = (self.root / "agents" / agent / "transcripts" / "projects").iterdir()
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def stored_transcripts(self, agent: str) -> list[Path]:
        """Return the stored main transcript and its subagents'."""
        folder = self.root / "agents" / agent / "transcripts"
        (main,) = folder.glob(f"projects/*/{self.native(agent)}.jsonl")
        return [main, *sorted(main.with_suffix("").glob("subagents/*.jsonl"))]
