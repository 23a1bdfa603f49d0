"""`AgentSession` over the stored session, and `AgentSandbox` over an adapter alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir import AgentConfig, AgentSandbox, AgentsdirError, AgentSession, App, Callbacks
from agentsdir.adapters import registry
from agentsdir.adapters.in_process import model_provider
from agentsdir.adapters.protocol import Architecture, NativeFile, Paths, Profile
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript
from agentsdir.formats import blocks
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.source import Source

pytestmark = pytest.mark.feature("B-10")

SCRIPTS = Path(__file__).parents[3] / "fixtures" / "script"


@contextmanager
def registered(architecture: Architecture) -> Iterator[Architecture]:
    """Have an architecture of this process."""
    registry.register(architecture)
    try:
        yield architecture
    finally:
        registry.unregister(architecture.name)


def printed(root: Path, *arguments: str) -> Any:
    """Return the JSON that a command prints."""
    command = [sys.executable, "-m", "agentsdir.cli.main", "--root", str(root), *arguments]
    return orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def scripted(root: Path, name: str, **wanted: Any) -> AgentSession:
    """Return a session that plays a script."""
    options = {"file": str(SCRIPTS / name)}
    return AgentSession.create(root=root, architecture="script", options=options, **wanted)


def test_the_state_is_what_the_command_prints(tmp_path: Path) -> None:
    """`get_state` and `inspect --runtime` are one document, of plain values."""
    session = scripted(tmp_path, "tools.jsonl")
    list(session.send_message("What is in the file?"))

    state = session.get_state()

    assert state == printed(tmp_path, "inspect", session.session_id, "--runtime")
    assert orjson.loads(orjson.dumps(state)) == state
    assert isinstance(state["rawTranscript"], str)


def test_the_blocks_of_a_stream_are_those_of_the_state(tmp_path: Path) -> None:
    """What was shown as it came is what a program that starts later shows, but for its sources."""
    session = scripted(tmp_path, "tools.jsonl")
    shown = Reducer()
    for event in session.send_message("What is in the file?"):
        shown.apply(event)

    stored = [{**block, "source": None} for block in session.get_state()["blocks"]]
    assert shown.blocks() == stored
    assert {block["source"]["file"] for block in session.get_state()["blocks"]}


def test_the_events_of_a_loaded_session_show_the_same_conversation(tmp_path: Path) -> None:
    """The code that shows live events shows a session that was loaded."""
    session = scripted(tmp_path, "two-turns.jsonl")
    list(session.send_message("one"))
    list(session.send_message("two"))

    loaded = AgentSession.create(root=tmp_path, session_id=session.session_id)
    shown = Reducer()
    for event in loaded.events:
        shown.apply(event)

    assert [block["id"] for block in shown.blocks()] == [
        block["id"] for block in session.get_state()["blocks"]
    ]
    assert shown.metadata["main"]["stopReason"]


def test_a_message_is_streamed_in_for_and_in_async_for(tmp_path: Path) -> None:
    """Both give each event of the turn, and each reading begins with the first."""
    session = AgentSession.create(root=tmp_path, architecture="echo")
    stream = session.send_message("good morning")

    async def read() -> list[Any]:
        return [event async for event in stream]

    assert asyncio.run(read()) == list(stream) == list(stream.execution)
    assert [event["delta"] for event in stream if event["type"] == "text_delta"] == [
        "good ",
        "morning",
    ]


def test_a_turn_that_fails_raises_where_its_events_are_read(tmp_path: Path) -> None:
    """A failure is not taken for the end of an answer, in either loop."""
    session = scripted(tmp_path, "fails.jsonl")
    stream = session.send_message("hi")

    async def read() -> None:
        async for _ in stream:
            pass

    with pytest.raises(ProviderError):
        list(stream)
    with pytest.raises(ProviderError):
        asyncio.run(read())


def test_messages_of_one_session_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """A second one may be sent before the first is read."""
    session = AgentSession.create(root=tmp_path, architecture="echo")
    streams = [session.send_message(f"number {number}") for number in range(5)]
    for stream in streams:
        list(stream)

    said = [b["content"] for b in session.get_state()["blocks"] if b["type"] == "assistant_text"]
    assert said == [f"number {number}" for number in range(5)]


def test_an_architecture_is_named_as_stored_sessions_name_it(tmp_path: Path) -> None:
    """The `type` of a session makes another one of its architecture, as the adapter's name does."""

    def call(_request: Any) -> str:
        return "yes"

    made = model_provider("short", call)._replace(architecture="the-long-name")
    with registered(made):
        by_long_name = AgentSession.create(root=tmp_path, architecture="the-long-name")
        by_name = AgentSession.create(root=tmp_path, architecture="short")
        states = [one.get_state() for one in (by_long_name, by_name)]

    assert {(state["type"], state["provider"]) for state in states} == {("the-long-name", "short")}


def test_an_unknown_architecture_makes_nothing(tmp_path: Path) -> None:
    """It is a mistake of the program."""
    with pytest.raises(AgentsdirError) as caught:
        AgentSession.create(root=tmp_path / "root", architecture="none-such")
    assert caught.value.kind == "no-such-adapter"
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("reference", ["nobody", "a" * 32, "a" * 24])
def test_a_session_that_is_not_there_is_not_made(tmp_path: Path, reference: str) -> None:
    """An id names a session, and does not ask for a new one."""
    AgentSession.create(root=tmp_path, architecture="echo")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(AgentsdirError) as caught:
        AgentSession.create(root=tmp_path, session_id=reference)
    assert caught.value.kind == "no-such-agent"
    assert sorted(tmp_path.rglob("*")) == before


def test_the_beginning_of_an_id_names_no_session(tmp_path: Path) -> None:
    """A command completes what a person types; a program says what it means."""
    session = AgentSession.create(root=tmp_path, architecture="echo")
    with pytest.raises(AgentsdirError) as caught:
        AgentSession.create(root=tmp_path, session_id=session.session_id[:12])
    assert caught.value.kind == "no-such-agent"


@pytest.mark.parametrize(
    "more", [{"architecture": "echo"}, {"agent_profile_ref": "x"}, {"options": {"file": "x"}}]
)
def test_a_loaded_session_keeps_what_it_was_made_with(tmp_path: Path, more: Any) -> None:
    """Asking for another architecture is refused, and not passed over."""
    session = AgentSession.create(root=tmp_path, architecture="echo")
    with pytest.raises(AgentsdirError, match="keeps the architecture"):
        AgentSession.create(root=tmp_path, session_id=session.session_id, **more)


def test_a_loaded_session_has_settings_changed_only_where_they_are_given(tmp_path: Path) -> None:
    """The model is the one that it had, until another is named."""

    def call(request: Any) -> str:
        return str(request.model)

    with registered(model_provider("short", call)):
        session = AgentSession.create(root=tmp_path, architecture="short", model="first")
        same = AgentSession.create(root=tmp_path, session_id=session.session_id)
        assert answers(iter(same.send_message("hi"))) == ["first"]

        other = AgentSession.create(root=tmp_path, session_id=session.session_id, model="second")
        assert answers(iter(other.send_message("hi"))) == ["second"]
        assert session.get_state()["model"] == "second"


def test_a_closed_session_is_shown_and_not_gone_on_with(tmp_path: Path) -> None:
    """Its conversation is there; a message is refused."""
    session = AgentSession.create(root=tmp_path, architecture="echo")
    list(session.send_message("hi"))
    session.session.close()

    loaded = AgentSession.create(root=tmp_path, session_id=session.session_id)
    assert loaded.get_state()["state"] == "terminated"
    assert len(loaded.get_state()["blocks"]) == 2
    with pytest.raises(AgentsdirError, match=r"terminated|closed"):
        list(loaded.send_message("more"))


def test_a_session_of_an_app_is_an_agent_session_too(tmp_path: Path) -> None:
    """The two are faces of one thing."""
    with App(AgentConfig(provider="echo"), root=tmp_path) as app:
        session = AgentSession(app.session("user-123"))
        list(session.send_message("hi"))
        assert session.get_state()["name"] == "user-123"


def test_callbacks_are_called_for_the_turns_of_a_session(tmp_path: Path) -> None:
    """They are the bus on which a program has the events of its turns."""
    seen: list[Any] = []
    session = AgentSession.create(
        root=tmp_path, architecture="echo", callbacks=Callbacks(on_event=seen.append)
    )
    assert list(session.send_message("hi")) == seen != []


# The sandbox.


class SeenReader(RecordedReader):
    """A reader that says what is asked of it."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def paths(self, home: Path, cwd: Path, env: Any) -> Paths:
        """Return folders below home."""
        self._said.append("paths")
        return Paths(home / ".seen", home / ".seen" / cwd.name)

    def discover(self, sources: Any) -> Any:
        """Note the files."""
        self._said.append("discover")
        return super().discover(sources)

    def parse_transcripts(self, session: Any, sink: Any) -> None:
        """Note the parsing."""
        self._said.append("parse_transcripts")
        super().parse_transcripts(session, sink)


class SeenSession:
    """A session that answers each query with how it was opened."""

    def __init__(self, spec: Any, how: str, said: list[str]) -> None:
        self._spec, self._how, self._said = spec, how, said
        self._transcript = RecordedTranscript(spec, next(iter(spec.transcripts.values()), None))

    def send(self, content: Any) -> Iterator[Any]:
        """Answer, or fail where that is asked for."""
        self._said.append("send")
        yield self._transcript.prompt(content, self._spec.now())
        if content == "fail":
            raise ValueError("as asked")
        text = self._how
        block = self._transcript.block("assistant_text", "answer", self._spec.now(), content=text)
        yield self._transcript.record(blocks.block_complete(block["id"], block))

    def interrupt(self) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def suspend(self) -> bytes:
        """Return nothing."""
        return b""

    def stop(self) -> None:
        """Note the end."""
        self._said.append("stop")

    def transcripts(self) -> list[NativeFile]:
        """Return the transcript."""
        return self._transcript.files()


class SeenProvider:
    """The provider of a program, which says what is asked of it."""

    option_names = ()
    default_model = ""
    runs_program = True

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def create(self, spec: Any) -> SeenSession:
        """Open a new session."""
        self._said.append("create")
        return SeenSession(spec, "new", self._said)

    def restore(self, spec: Any, state: bytes) -> SeenSession:
        """Open a session that is there."""
        assert state == b""
        self._said.append("restore")
        return SeenSession(spec, "restored", self._said)

    def fork(self, *_: Any) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def native_files(self, spec: Any) -> list[Any]:
        """Return none."""
        del spec
        self._said.append("native_files")
        return []

    def materialize(self, spec: Any) -> list[Path]:
        """Note the files that are to be there."""
        self._said.append("materialize " + " ".join(spec.transcripts))
        return []

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Return `ours`."""
        del saved, present
        return ours

    def workspace_files(self, profile: Profile) -> dict[str, bytes]:
        """Return the profile's instructions."""
        self._said.append("workspace_files")
        return profile.files(".seen", "SEEN.md")


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Have an architecture ``seen-cli`` whose adapter notes its calls."""
    calls: list[str] = []
    made = Architecture("seen", "seen-cli", "", SeenReader(calls), SeenProvider(calls))
    with registered(made):
        yield calls


def answers(events: Iterator[Any]) -> list[str]:
    """Return the texts of the model in stream events."""
    found = [event["block"] for event in events if event["type"] == "block_complete"]
    return [block["content"] for block in found if block["type"] == "assistant_text"]


def test_each_call_of_a_sandbox_is_one_of_its_adapter(tmp_path: Path, said: list[str]) -> None:
    """The class knows no architecture: all that differs is asked of the adapter."""
    sandbox = AgentSandbox("seen-cli", tmp_path)

    def calls_of(call: Callable[[], Any]) -> list[str]:
        said.clear()
        call()
        return list(said)

    files = {"a.jsonl": b""}
    assert calls_of(sandbox.get_paths) == ["paths"]
    assert calls_of(lambda: sandbox.setup_agent_profile(Profile("Be kind.", {}, {}))) == [
        "workspace_files"
    ]
    assert calls_of(lambda: sandbox.parse_transcripts(files)) == ["discover", "parse_transcripts"]
    assert calls_of(lambda: sandbox.setup_session_transcripts(files))[0] == "materialize a.jsonl"
    assert calls_of(lambda: list(sandbox.execute_query("hi", is_new_session=True))) == [
        "create",
        "send",
        "stop",
    ]
    assert calls_of(lambda: list(sandbox.execute_query("hi"))) == ["restore", "send", "stop"]


def test_a_query_goes_on_with_the_session_of_those_before(tmp_path: Path, said: list[str]) -> None:
    """The first one makes it; blocks of all of them have ids of their own."""
    del said
    sandbox = AgentSandbox("seen", tmp_path)
    assert answers(sandbox.execute_query("one")) == ["new"]
    assert answers(sandbox.execute_query("two")) == ["restored"]

    other = AgentSandbox("seen", tmp_path, session_id=sandbox.session_id)
    other.setup_session_transcripts(sandbox.transcripts())
    assert answers(other.execute_query("three")) == ["restored"]

    parsed = other.parse_transcripts()
    texts = [block["content"] for block in parsed["blocks"]]
    assert texts == ["one", "new", "two", "restored", "three", "restored"]
    assert len({block["id"] for block in parsed["blocks"]}) == 6
    assert parsed["subagents"] == []


@pytest.mark.parametrize("query", ["fail", "left"])
def test_a_session_is_stopped_however_its_query_ends(
    tmp_path: Path, said: list[str], query: str
) -> None:
    """A provider that raises, and a program that reads no further, leave nothing running."""
    events = AgentSandbox("seen", tmp_path).execute_query(query)
    assert next(events)["block"]["content"] == query
    if query == "fail":
        with pytest.raises(ProviderError, match="as asked"):
            list(events)
    else:
        events.close()  # type: ignore[attr-defined]
    assert said[-1] == "stop"


def test_a_profile_is_written_into_the_workspace_and_over_nothing(
    tmp_path: Path, said: list[str]
) -> None:
    """A file that is there stays as it is, and is not among those written."""
    del said
    sandbox = AgentSandbox("seen", tmp_path)
    profile = Profile("Be kind.", {"a.md": b"skill"}, {})
    assert sandbox.setup_agent_profile(profile) == [".seen/skills/a.md", "SEEN.md"]
    assert (tmp_path / "SEEN.md").read_text() == "Be kind."

    (tmp_path / "SEEN.md").write_text("mine")
    assert sandbox.setup_agent_profile(profile) == []
    assert (tmp_path / "SEEN.md").read_text() == "mine"


def test_files_of_a_profile_may_be_written_elsewhere(tmp_path: Path, said: list[str]) -> None:
    """The workspace may be one of another machine."""
    del said
    written: dict[str, bytes] = {}
    sandbox = AgentSandbox("seen", tmp_path, write_file=written.__setitem__)
    assert sandbox.setup_agent_profile(Profile("Be kind.", {}, {})) == ["SEEN.md"]
    assert written == {"SEEN.md": b"Be kind."}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_a_profile_writes_nothing_outside_of_the_workspace(
    tmp_path: Path, said: list[str], name: str
) -> None:
    """Its names are checked as those of a profile of an agents directory."""
    del said
    (work := tmp_path / "work" / "here").mkdir(parents=True)
    with pytest.raises(AgentsdirError):
        AgentSandbox("seen", work).setup_agent_profile(Profile("", {f"../../{name}": b""}, {}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_stored_session_is_parsed_by_its_adapter(tmp_path: Path) -> None:
    """`rawTranscript` of a state becomes the blocks of that state."""
    session = scripted(tmp_path, "subagent.jsonl")
    list(session.send_message("Review this"))
    state = session.get_state()

    sandbox = AgentSandbox(state["type"], tmp_path)
    parsed = sandbox.parse_transcripts(state["rawTranscript"])

    def named(found: list[Any]) -> list[Any]:
        return [(block["id"], block["type"]) for block in found]

    assert named(parsed["blocks"]) == named(state["blocks"])
    assert [(one["id"], named(one["blocks"])) for one in parsed["subagents"]] == [
        (one["id"], named(one["blocks"])) for one in state["subagents"]
    ]
    assert parsed["subagents"]


def test_a_sandbox_writes_no_agents_directory(tmp_path: Path) -> None:
    """It is the lower half of a session: nothing is logged."""
    sandbox = AgentSandbox("echo", tmp_path)
    assert answers(sandbox.execute_query("hi there")) == ["hi there"]
    assert list(tmp_path.iterdir()) == []
