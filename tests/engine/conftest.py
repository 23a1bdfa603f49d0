"""Shared by the tests of `engine`: a world with a fixed clock and ids, and made-up plug-ins."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import settings

from agentsdir.engine.agents import find_agent
from agentsdir.engine.creation import NewAgent, create_agent
from agentsdir.engine.turns import TurnResult, send
from agentsdir.engine.world import World
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths, Layout

sys.path.insert(0, str(Path(__file__).parent))  # for what its tests share

settings.register_profile(
    "agentsdir", deadline=None, derandomize=True, database=None, max_examples=100
)
settings.load_profile("agentsdir")

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "script"


class Counted:
    """Ids in order of their making, in the grammar of the random ones."""

    def __init__(self) -> None:
        self.made = 0

    def agent(self) -> str:
        """Return the next agent, message or turn id."""
        self.made += 1
        return f"x{self.made:023}"

    def session(self) -> str:
        """Return the next session id."""
        self.made += 1
        return f"{self.made:08x}{'e' * 24}"


@dataclass
class Stage:
    """A world to play in, and shorthands for what the tests do with it."""

    root: Path
    scripts: Path = SCRIPTS
    ticks: int = 0
    slept: list[float] = field(default_factory=list)
    ids: Counted = field(default_factory=Counted)

    @property
    def world(self) -> World:
        """Return the engine's surroundings."""
        return World(Layout(self.root), self.now, self.slept.append, self.ids, Disk(), lambda: None)

    def now(self) -> str:
        """Return the next millisecond of a fixed day."""
        self.ticks += 1
        return f"2026-01-02T03:04:{self.ticks // 1000:02}.{self.ticks % 1000:03}000Z"

    def new(self, **wanted: Any) -> AgentPaths:
        """Create an agent."""
        wanted = {"login": "me", "cwd": "/", **wanted}
        return find_agent(Layout(self.root), create_agent(self.world, NewAgent(**wanted)))

    def script(self, name: str, **wanted: Any) -> AgentPaths:
        """Create an agent that plays one of the script fixtures, or a file given by its path."""
        options = {"file": str(self.scripts / name)}
        return self.new(provider="script", options=options, **wanted)

    def send(self, paths: AgentPaths, text: str = "hi", **options: Any) -> TurnResult:
        """Send a text."""
        on_event = options.pop("on_event", lambda event: None)
        return send(self.world, paths, [{"type": "text", "text": text}], on_event, **options)

    def streamed(self, paths: AgentPaths, text: str = "hi") -> list[dict[str, Any]]:
        """Send a text and return the stream events."""
        events: list[dict[str, Any]] = []
        self.send(paths, text, on_event=events.append)
        return events

    def log(self, paths: AgentPaths) -> list[dict[str, Any]]:
        """Return the records of an agent's log."""
        return [orjson.loads(line) for line in paths.log.read_bytes().splitlines()]

    def events(self, paths: AgentPaths) -> list[str]:
        """Return what happened to an agent, in order."""
        return [record["event"] for record in self.log(paths)]

    def state(self, paths: AgentPaths) -> AgentState:
        """Return an agent's state, folded from its first record."""
        return read_agent(paths, whole=True).state

    def append(self, paths: AgentPaths, event: str, data: dict[str, Any]) -> None:
        """Append one event as a writer does."""
        with write_agent(paths) as writer:
            writer.append(event, data, self.now())

    def enqueue(self, paths: AgentPaths, text: str) -> str:
        """Leave a message in the inbox without running it."""
        message = self.ids.agent()
        content = [{"type": "text", "text": text}]
        data = {"message_id": message, "sender": "cli", "kind": "user", "content": content}
        self.append(paths, "message.enqueued", data)
        return message

    def tree(self) -> dict[str, bytes]:
        """Return every file of the agents directory."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return an empty agents directory with a fixed clock and fixed ids."""
    return Stage(tmp_path / "root")


PLUGIN = """
from agentsdir.adapters.contract import Architecture, NativeFile
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats.reading import stream
from agentsdir.formats.errors import ProviderError


class Session:
    def __init__(self, spec):
        self.spec = spec
        saved = [source.read() for source in spec.transcripts.values()]
        self.transcript = RecordedTranscript(spec, *saved[:1])

    def answer(self, text):
        block = self.transcript.block("assistant_text", "answer", self.spec.now(), content=text)
        return self.transcript.record(stream.block_complete(block["id"], block))

    def send(self, content):
        yield self.transcript.prompt(content, self.spec.now())
        {body}

    def interrupt(self):
        return iter(())

    def suspend(self):
        {suspend}

    def stop(self):
        pass

    def transcripts(self):
        return self.transcript.files()


class Provider:
    option_names = ()
    default_model = "tiny-1"
    runs_program = False

    def fork(self, transcripts, old_id, new_id, report):
        return iter(())

    def create(self, spec):
        return self.restore(spec, b"")

    def restore(self, spec, state):
        {restore}
        return Session(spec)


class Reader(RecordedReader):
    def detect(self, head, name):
        return False


ARCHITECTURE = Architecture(
    name={name!r},
    architecture={name!r} + "-cli",
    summary="made by a test",
    reader=Reader(),
    provider=Provider(),
)
"""


def write_plugin(
    site: Path,
    name: str,
    body: str = 'yield self.answer("tiny says " + str(content))',
    suspend: str = 'return b"blob"',
    restore: str = "pass",
) -> None:
    """Write an installed plug-in: one module, and the metadata that publishes it."""
    module = f"plugin_{name}"
    parts = {"body": (body, 8), "suspend": (suspend, 8), "restore": (restore, 8)}
    indented = {
        key: textwrap.indent(textwrap.dedent(text), " " * depth).lstrip()
        for key, (text, depth) in parts.items()
    }
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{module}.py").write_text(PLUGIN.format(name=name, **indented))
    info = site / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[agentsdir.adapters]\n{name} = {module}:ARCHITECTURE\n"
    )


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Return a function that installs a plug-in for this process; it returns its name."""
    made: list[str] = []

    def install(name: str, **parts: str) -> str:
        site = tmp_path / f"site-{name}"
        write_plugin(site, name, **parts)
        monkeypatch.syspath_prepend(str(site))
        made.append(f"plugin_{name}")
        return name

    yield install
    for module in made:
        sys.modules.pop(module, None)


@pytest.fixture
def plugin_site(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a plug-in into a folder, for other processes."""

    def write(name: str, **parts: str) -> Path:
        site = tmp_path / f"site-{name}"
        write_plugin(site, name, **parts)
        return site

    return write
