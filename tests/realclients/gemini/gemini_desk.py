"""A desk with the real Gemini CLI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from commands import Done
from desk import Desk
from gemini_api import GeminiApi, Request

MODEL = "gemini-2.5-pro"

# What a client loads first: it names its files by the minute, and tests have no minute to wait.
_CLOCK = """
const Real = Date;
globalThis.Date = class extends Real {
  constructor(...given) { given.length ? super(...given) : super(Real.now() + %d); }
  static now() { return new globalThis.Date().getTime(); }
};
"""
# Retention is left as it is by default: it deletes what a start takes for broken.
_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False, "maxAttempts": 1},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "experimental": {"enableAgents": True},
}


class GeminiDesk(Desk[GeminiApi]):
    """A home in which Gemini CLI has its store."""

    provider = "gemini"
    address = "GOOGLE_GEMINI_BASE_URL"
    quiet_client = {  # noqa: RUF012, it stays as it is
        "GEMINI_API_KEY": "dummy",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "NO_COLOR": "1",
    }

    minutes = 0
    store = property(lambda self: self.home / ".gemini")

    @property
    def keeps_documents(self) -> bool:
        """Tell whether this client keeps a session in one JSON document, and finds an id itself."""
        return "0.38." in str(self.client)

    @property
    def delegate(self) -> str:
        """The plan in which this client's model calls a subagent."""
        return "delegate-by-name" if self.keeps_documents else "delegate"

    def prepare(self) -> None:
        """Set the client up, and let tools run unasked."""
        self.settle()
        # Without a model the client asks another model which to ask.
        self.settings |= {"model": MODEL, "permission_mode": "yolo"}
        self.configure()

    def settle(self, **general: Any) -> None:
        """Write the client's settings, with these besides."""
        self.store.mkdir(exist_ok=True)
        settings = {**_SETTINGS, "general": {**_SETTINGS["general"], **general}}
        (self.store / "settings.json").write_bytes(orjson.dumps(settings))

    def by_hand_command(self, native: str, prompt: str, *, fresh: bool) -> list[str]:
        """Return how the client's user begins or resumes a session with a prompt.

        An older client names a new session itself.
        """
        begun = [] if self.keeps_documents else ["--session-id", native]
        opening = begun if fresh else ["--resume", native]
        return ["-p", prompt, "-m", MODEL, "-o", "stream-json", "--yolo", *opening]

    def begun_by_hand(self, native: str, prompt: str) -> str:
        """Begin a session in the client itself, and return the id that it has."""
        said = self.by_hand(native, prompt, fresh=True).splitlines()[0]
        return str(orjson.loads(said)["session_id"])

    def recalled(self, agent: str) -> Request:
        """Run a next turn, hold the agent to what is true after it, and return what was sent."""
        done = self.send(agent, "again")
        if self.minutes and "Lock is already released" in done.err:
            # By its shifted clock the client's own lock is stale, if it is slow to start.
            done = self.send(agent, "again")
        assert (done.code, done.out) == (0, "This is the next turn.\n"), done
        self.sound(agent)
        return self.api.of("again")[-1]

    def later(self) -> None:
        """Have the client believe from now on that it is minutes later."""
        self.minutes += 2
        shift = self.folder / "clock.js"
        shift.write_text(_CLOCK % (self.minutes * 60_000))
        self.variables["NODE_OPTIONS"] = f'--require "{shift}"'
        self.configure()

    def chats(self, native: str) -> list[Path]:
        """Return the client's own files of a session, stubs included."""
        return sorted(self.store.glob(f"tmp/*/chats/session-*-{native[:8]}.json*"))

    def native_files(self, native: str) -> dict[str, bytes]:
        """Return what the client has of a session, by path in its project's folder."""
        (project,) = {path.parent.parent for path in self.chats(native)}
        inner = (f"chats/{native}/*", f"tool-outputs/session-{native}/*")
        beside = [path for pattern in inner for path in project.glob(pattern)]
        return {
            path.relative_to(project).as_posix(): path.read_bytes()
            for path in (*self.chats(native), *beside)
        }

    def stored_files(self, agent: str) -> dict[str, bytes]:
        """Return the same of what the agent's folder has, of all its sessions."""
        (folder,) = (self.root / "agents" / agent / "transcripts" / "tmp").iterdir()
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def stored_transcripts(self, agent: str) -> list[Path]:
        """Return the stored chat file of the session in force, and its subagents' files."""
        native = self.native(agent)
        folder = self.root / "agents" / agent / "transcripts"
        mains = sorted(folder.glob(f"tmp/*/chats/session-*-{native[:8]}.json*"))
        return [*mains, *sorted(folder.glob(f"tmp/*/chats/{native}/*.json*"))]

    def sound(self, agent: str) -> None:
        """Hold an agent to what is true after every turn, and each call to one result."""
        super().sound(agent)
        assert_paired(list(self.blocks(agent).values()))
        assert len(self.chats(self.native(agent))) == 1  # no stub stays, which a start would take


def assert_paired(blocks: list[dict[str, Any]]) -> None:
    """Hold blocks to it that each call of a tool has one result."""
    calls = [b["toolUseId"] for b in blocks if b["type"] == "tool_use"]
    results = [b["toolUseId"] for b in blocks if b["type"] == "tool_result"]
    assert sorted(set(calls)) == sorted(calls)
    assert sorted(results) == sorted(calls)


def failed(done: Done) -> str:
    """Return the kind of the error with which a turn failed."""
    assert done.code == 14, done
    return str(done.error["kind"])
