"""Shared by the tests of `engine`: services with a fixed clock and ids, and made-up plug-ins."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.adapters.protocol import Host
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.result import TurnResult
from agentsdir.engine.services import ClientConfig, Services
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.state import AgentState

sys.path.insert(0, str(Path(__file__).parent))  # for what its tests share

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
    """A root to play in, and shorthands for what the tests do with it."""

    root: Path
    scripts: Path = SCRIPTS
    ticks: int = 0
    slept: list[float] = field(default_factory=list)
    ids: Counted = field(default_factory=Counted)
    client: ClientConfig = field(default_factory=lambda: ClientConfig(Host(Path("/nonexistent"))))

    @property
    def services(self) -> Services:
        """Return the engine's surroundings."""
        return Services(
            Layout(self.root),
            self.now,
            self.slept.append,
            self.ids,
            Disk(),
            lambda: None,
            lambda _state: self.client,
        )

    @property
    def home(self) -> Path:
        """Return the home that programs are given."""
        return self.client.host.home

    def now(self) -> str:
        """Return the next millisecond of a fixed day."""
        self.ticks += 1
        return f"2026-01-02T03:04:{self.ticks // 1000:02}.{self.ticks % 1000:03}000Z"

    def new(self, **wanted: Any) -> AgentPaths:
        """Create an agent."""
        wanted = {"login": "me", "cwd": "/", **wanted}
        return find_agent(Layout(self.root), create_agent(self.services, NewAgent(**wanted)))

    def script(self, name: str, **wanted: Any) -> AgentPaths:
        """Create an agent that plays one of the script fixtures, or a file given by its path."""
        options = {"file": str(self.scripts / name)}
        return self.new(provider="script", options=options, **wanted)

    def send(self, paths: AgentPaths, text: str = "hi", **options: Any) -> TurnResult:
        """Send a text."""
        on_event = options.pop("on_event", lambda event: None)
        return send(self.services, paths, [{"type": "text", "text": text}], on_event, **options)

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

    def begin_turn(self, paths: AgentPaths) -> str:
        """Leave a new agent in its first turn, as a killed `send` does; return the turn's id."""
        message, turn = self.enqueue(paths, "hi"), self.ids.agent()
        self.append(paths, "session.state", {"from": "created", "to": "active", "reason": "send"})
        start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
        self.append(paths, "turn.start", start)
        return turn

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
from agentsdir.adapters.protocol import Architecture, NativeFile
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats import blocks as stream
from agentsdir.formats.errors import ProviderError


class Session:
    def __init__(self, spec):
        self.spec = spec
        saved = list(spec.transcripts.values())
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


PROGRAM = """
import os
import subprocess
from pathlib import Path

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Architecture, Decision, NativeFile, ToolRequest
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats.errors import Invalid, ProviderError
from agentsdir.formats import blocks as stream
from agentsdir.formats.source import Source


def files(spec):
    store = spec.host.home / "store"
    main = store / (spec.native_id + ".jsonl")
    found = [NativeFile(main.name, "main", Source(str(main), path=main))] if main.exists() else []
    for child in sorted((store / spec.native_id).glob("*")):
        role = "sidecar" if child.suffix == ".json" else "subagent"
        path = child.relative_to(store).as_posix()
        found.append(NativeFile(path, role, Source(str(child), path=child)))
    return found


class Session:
    def __init__(self, spec, how):
        self.spec = spec
        self.host = spec.host
        self.how = how
        self.main = spec.host.home / "store" / (spec.native_id + ".jsonl")
        self.main.parent.mkdir(parents=True, exist_ok=True)
        before = self.main.read_bytes() if self.main.exists() else b""
        self.transcript = RecordedTranscript(spec, Source(self.main.name, data=before))
        self.started = []

    def write(self):
        self.main.write_bytes(self.transcript.files()[0].source.read())

    def on_disk(self, kind, part, **fields):
        block = self.transcript.block(kind, part, self.spec.now(), **fields)
        event = self.transcript.record(stream.block_complete(block["id"], block))
        self.write()
        return event

    def streamed(self, kind, part, **fields):
        block = self.transcript.block(kind, part, self.spec.now(), **fields)
        return stream.block_complete(block["id"], block)

    def begun(self, part, text):
        block = self.transcript.block("assistant_text", part, self.spec.now(), content="")
        yield stream.block_start(block["id"], block)
        yield stream.text_delta(block["id"], text, "main")

    def child(self, name, text):
        block = self.transcript.block("assistant_text", name, self.spec.now(), content=text)
        block["conversationId"] = name
        path = self.main.with_suffix("") / (name + ".jsonl")
        path.parent.mkdir(exist_ok=True)
        import orjson
        event = stream.block_complete(block["id"], block)
        path.write_bytes(orjson.dumps(event) + b"\\n")

    def start(self, *command):
        process = subprocess.Popen(command, env={{**os.environ, **self.host.marks}})
        self.started.append(process)
        self.host.on_start(processes.find(process.pid))
        return process

    def send(self, content):
        prompt = self.transcript.prompt(content, self.spec.now())
        self.write()
        yield prompt
        {body}

    def interrupt(self):
        yield from ()
        {interrupt}

    def suspend(self):
        raise AssertionError("no program is started to be asked")

    def stop(self):
        for process in self.started:
            process.kill()
            process.wait()
        {stop}

    def transcripts(self):
        return files(self.spec)


class Provider:
    option_names = ()
    default_model = ""
    runs_program = True

    def fork(self, transcripts, old_id, new_id, report):
        return iter(())

    def create(self, spec):
        return Session(spec, "create")

    def restore(self, spec, state):
        return Session(spec, "restore")

    def native_files(self, spec):
        return files(spec)

    def materialize(self, spec):
        {place}
        store = spec.host.home / "store"
        written = []
        for path, source in spec.transcripts.items():
            if not (store / path).exists():
                (store / path).parent.mkdir(parents=True, exist_ok=True)
                (store / path).write_bytes(source.read())
                written.append(store / path)
        return written

    def is_continuation(self, saved, present, *, ours):
        return ours or {grows}

    def workspace_files(self, profile):
        return {{}}


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

SAYS = 'yield self.on_disk("assistant_text", "answer", content="client says " + str(content))'


def write_program(
    site: Path,
    name: str,
    body: str = SAYS,
    interrupt: str = "pass",
    stop: str = "pass",
    place: str = "pass",
    grows: str = "False",
) -> None:
    """Write an installed plug-in whose provider keeps its transcripts in a client's own store."""
    _install(
        site,
        name,
        PROGRAM,
        {
            "body": (body, 8),
            "interrupt": (interrupt, 8),
            "stop": (stop, 8),
            "place": (place, 8),
            "grows": (grows, 0),
        },
    )


def write_plugin(
    site: Path,
    name: str,
    body: str = 'yield self.answer("tiny says " + str(content))',
    suspend: str = 'return b"blob"',
    restore: str = "pass",
) -> None:
    """Write an installed plug-in: one module, and the metadata that publishes it."""
    parts = {"body": (body, 8), "suspend": (suspend, 8), "restore": (restore, 8)}
    _install(site, name, PLUGIN, parts)


def _install(site: Path, name: str, template: str, parts: dict[str, tuple[str, int]]) -> None:
    module = f"plugin_{name}"
    indented = {
        key: textwrap.indent(textwrap.dedent(text), " " * depth).lstrip()
        for key, (text, depth) in parts.items()
    }
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{module}.py").write_text(template.format(name=name, **indented))
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
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> Iterator[Callable[..., str]]:
    """Return a function that installs a program provider, with a home of its own; or changes it."""
    made: set[str] = set()
    stage.client = ClientConfig(Host(tmp_path / "home"))

    def install(name: str = "client", **parts: str) -> str:
        site = tmp_path / f"site-{name}-{len(made)}"
        sys.modules.pop(f"plugin_{name}", None)
        made.add(str(site))
        write_program(site, name, **parts)
        monkeypatch.syspath_prepend(str(site))
        return name

    yield install
    sys.modules.pop("plugin_client", None)


@pytest.fixture
def plugin_site(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a plug-in into a folder, for other processes."""

    def write(name: str, **parts: str) -> Path:
        site = tmp_path / f"site-{name}"
        write_plugin(site, name, **parts)
        return site

    return write
