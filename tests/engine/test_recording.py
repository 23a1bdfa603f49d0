"""The stream of a turn, kept as it happens, and given back by replay."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import printed

from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.session_data import runtime_session, saved_session
from agentsdir.engine.slots import suspend
from agentsdir.engine.validate.files import AgentCheck, CheckCounts
from agentsdir.formats.blocks import block_complete, make_block
from agentsdir.formats.errors import AgentsdirError, NotRecorded, ProviderError
from agentsdir.formats.findings import Finding
from agentsdir.formats.store.agent import all_synced
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.log import END, parse_cursor
from agentsdir.formats.store.transcripts import StreamFile
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("C-06", "B-05")

SCRIPTS = ("tools.jsonl", "subagent.jsonl", "thinking.jsonl")


def recorded(stage: Any, paths: Any, text: str = "hi") -> list[dict[str, Any]]:
    """Send a text with its stream kept; return the stream events."""
    events: list[dict[str, Any]] = []
    stage.send(paths, text, on_event=events.append, record=True)
    return events


def played(paths: Any, until: Any = END) -> list[dict[str, Any]]:
    """Replay with streams; nothing may be found."""
    findings: list[Finding] = []
    events = list(replay(paths, findings.append, until, streams=True))
    assert findings == []
    return events


def bare(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without their times."""
    return [{k: v for k, v in event.items() if k != "timestamp"} for event in events]


def kept(paths: Any) -> list[Path]:
    """Return the files of streams, in order of their turns."""
    return sorted(paths.transcripts.rglob("*.stream"))


def problems(paths: Any) -> list[tuple[str, str]]:
    """Return what `validate` says of an agent: id and file."""
    found = AgentCheck(paths, paths.id, CheckCounts(), modes=True).run()
    return [(problem.id, problem.file.removeprefix(f"{paths.id}/")) for problem in found]


@pytest.mark.parametrize("script", [*SCRIPTS, "echo"])
def test_a_recorded_turn_is_played_back_event_for_event(stage: Any, script: str) -> None:
    """With its deltas and the time of each, and then the turn's end from the log."""
    paths = stage.new() if script == "echo" else stage.script(script)
    streamed = recorded(stage, paths, "one")
    events = played(paths)
    assert bare(events[:-1]) == streamed
    assert events[-1]["metadata"]["turnId"] == stage.log(paths)[-2]["data"]["turn_id"]
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)
    assert len(set(times)) == len(times)
    assert all(check("stream-event", event) == [] for event in events)
    assert problems(paths) == []


def test_the_file_holds_the_events_and_the_log_names_it(stage: Any) -> None:
    """By path, role, size and hash, before the turn's end; private whatever the umask."""
    paths = stage.script("tools.jsonl")
    before = os.umask(0)
    try:
        streamed = recorded(stage, paths)
    finally:
        os.umask(before)
    (path,) = kept(paths)
    native = stage.state(paths).native["id"]
    assert path == paths.transcripts / native / "turn-1.stream"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    data = path.read_bytes()
    assert bare([orjson.loads(line) for line in data.splitlines()]) == streamed
    entry = {
        "path": f"{native}/turn-1.stream",
        "role": "stream",
        "size": len(data),
        "sha256": sha256(data).hexdigest(),
    }
    assert stage.events(paths)[-4:] == [
        *["transcript.synced"] * 2,
        "turn.complete",
        "message.delivered",
    ]
    assert stage.log(paths)[-4]["data"] == {"files": [entry]}
    path = entry.pop("path")
    assert path not in stage.state(paths).transcripts
    assert all_synced(paths, stage.state(paths))[path] == {**entry, "native": native}


def test_nothing_is_kept_unless_it_is_asked_for(stage: Any) -> None:
    """And a replay gives blocks for the one turn, events for the other."""
    paths = stage.new()
    stage.send(paths, "a b c")
    recorded(stage, paths, "d e")
    assert [path.name for path in kept(paths)] == ["turn-2.stream"]
    types = [event["type"] for event in played(paths)]
    assert types == [
        *["block_complete"] * 2,
        "metadata_update",
        *["block_complete", "block_start", "text_delta", "text_delta", "block_complete"],
        *["metadata_update"] * 2,
    ]
    plain: list[Finding] = []
    blocks = [event["type"] for event in replay(paths, plain.append)]
    assert blocks == [*["block_complete"] * 2, "metadata_update"] * 2


def test_only_the_message_that_was_sent_is_recorded(stage: Any) -> None:
    """One that was queued before it runs first, and leaves no stream."""
    paths = stage.new()
    stage.enqueue(paths, "queued")
    assert bare(played(paths)) == []
    recorded(stage, paths, "mine")
    (path,) = kept(paths)
    assert path.name == "turn-2.stream"
    assert b"queued" not in path.read_bytes()


def test_a_recorded_session_played_as_a_script_streams_the_same(stage: Any, tmp_path: Any) -> None:
    """Deltas included."""
    paths = stage.script("tools.jsonl")
    streamed = recorded(stage, paths, "one")
    talk = tmp_path / "talk.jsonl"
    talk.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in played(paths)))
    again = stage.streamed(stage.script(str(talk)), "one")
    types = [event["type"] for event in streamed]
    assert [event["type"] for event in again][: len(types)] == types


def test_a_point_within_a_recorded_turn_gives_its_blocks(stage: Any) -> None:
    """The log does not name the stream before it is whole."""
    paths = stage.new()
    recorded(stage, paths, "a b c")
    log = stage.log(paths)
    synced = next(r["seq"] for r in log if r["event"] == "transcript.synced")
    assert [e["type"] for e in played(paths, parse_cursor(str(synced - 1)))] == [
        "block_complete",
        "block_complete",
    ]
    whole = played(paths)
    assert played(paths, parse_cursor(str(synced))) == whole[:-1]
    assert played(paths, parse_cursor(log[synced - 1]["ts"])) == whole[:-1]


def cut(path: Path) -> None:
    """Lose the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    """Change one byte."""
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])


def grow(path: Path) -> None:
    """Append a line."""
    path.write_bytes(path.read_bytes() + b"{}\n")


def link(path: Path) -> None:
    """Put a link to the same bytes in its place."""
    other = path.with_name("elsewhere")
    path.rename(other)
    path.symlink_to(other)


def folder(path: Path) -> None:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip, grow, link, folder])
def test_a_lost_stream_is_named_and_the_turn_is_played_from_its_blocks(
    stage: Any, damage: Any
) -> None:
    """The session goes on, and other turns' streams are given."""
    paths = stage.new()
    recorded(stage, paths, "a b")
    second = recorded(stage, paths, "c d")
    blocks = list(replay(paths, lambda finding: None))
    path = kept(paths)[0]
    damage(path)
    findings: list[Finding] = []
    events = list(replay(paths, findings.append, streams=True))
    assert [(f.id, f.file, f.is_damage) for f in findings] == [("stream-lost", str(path), True)]
    assert events[:3] == blocks[:3]
    assert bare(events[3:-1]) == second
    assert list(replay(paths, findings.append)) == blocks
    assert len(findings) == 1
    assert stage.send(paths, "e").response == "e"
    assert stage.state(paths).counters["turns"] == 3


def name_stream(stage: Any, paths: Any, entry: Any, *blocks: dict[str, Any]) -> None:
    """Log a turn as another writer might, whose stream is `entry`."""
    turn = {"turn_id": stage.ids.agent()}
    start = {**turn, "message_ids": [], "provider": "echo", "attempt": 1}
    stage.append(paths, "turn.start", start)
    for block in blocks:
        stage.append(paths, "block", {**turn, "block": block})
    with suppress(TypeError):  # the record stands, and the fold passes over what it cannot be
        stage.append(paths, "transcript.synced", {"files": [entry]})
    done = {**turn, "response": "", "stop_reason": "end_turn", "usage": None}
    stage.append(paths, "turn.complete", done)


@pytest.mark.parametrize(
    ("lines", "change"),
    [
        (b"{}\n", {}),
        (b"[1]\n", {}),
        (b'{"type":"turn"}\n', {}),
        (b'{"type":["block_complete"]}\n', {}),
        (b"\xff\0\n", {}),
        (b'{"type":"text_delta"}\n', {"path": "../../../agentsdir.json"}),
        (b'{"type":"text_delta"}\n', {"path": "/etc/passwd"}),
        (b'{"type":"text_delta"}\n', {"path": "gone/turn-1.stream"}),
        (b'{"type":"text_delta"}\n', {"size": "8"}),
        (b'{"type":"text_delta"}\n', {"sha256": None}),
    ],
)
def test_a_stream_that_another_writer_names_wrongly_is_lost(
    stage: Any, lines: bytes, change: dict[str, Any]
) -> None:
    """Whatever the log calls a stream, a replay stays within the agent's folder, and goes on."""
    paths = stage.new()
    (paths.transcripts / "x").mkdir(parents=True)
    (paths.transcripts / "x" / "y").write_bytes(lines)
    digest = sha256(lines).hexdigest()
    entry = {"path": "x/y", "role": "stream", "size": len(lines), "sha256": digest, **change}
    block = make_block("assistant_text", "b1", "main", "s", None, None, content="said")
    name_stream(stage, paths, entry, block)
    findings: list[Finding] = []
    events = list(replay(paths, findings.append, streams=True))
    assert [finding.id for finding in findings] == ["stream-lost"]
    assert [event["type"] for event in events] == ["block_complete", "metadata_update"]


def test_a_block_that_the_stream_does_not_complete_is_shown_all_the_same(stage: Any) -> None:
    """No recording hides what the log holds."""
    paths = stage.new()
    one, two = (
        make_block("assistant_text", name, "main", "s", None, None, content=name)
        for name in ("one", "two")
    )
    file = StreamFile(paths, "n", 1, Disk())
    file.write(orjson.dumps({**block_complete("h", one), "timestamp": stage.now()}) + b"\n")
    synced = file.finish()
    file.close()
    name_stream(stage, paths, synced.as_entry(), one, two)
    events = played(paths)
    assert [event["block"]["id"] for event in events[:-1]] == ["one", "two"]


TELLS = """
named = sorted(path.rpartition("/")[2] for path in self.spec.transcripts)
yield self.answer(self.how + " " + " ".join(named))
"""


ASKS = 'Session.how = "restored" if spec.transcripts else "new"'


def test_no_provider_is_handed_a_stream(stage: Any, plugin: Any) -> None:
    """Neither one that the log names nor one that a crash left; without others it is a new one."""
    plugin("telling", body=TELLS, restore=ASKS)
    paths = stage.new(provider="telling")
    native = stage.state(paths).native["id"]
    StreamFile(paths, native, 1, Disk()).close()
    stage.append(paths, "turn.start", crashed_turn(stage))
    assert stage.send(paths, "one", record=True).response == "new "
    assert [path.name for path in kept(paths)] == ["turn-1.stream", "turn-2.stream"]
    assert problems(paths) == [("transcript-unlisted", f"transcripts/{native}/turn-1.stream")]
    assert stage.send(paths, "two").response == f"restored {native}.jsonl"
    for path in kept(paths):
        path.unlink()
    assert stage.send(paths, "three").response == f"restored {native}.jsonl"
    suspend(stage.services, paths)


def crashed_turn(stage: Any) -> dict[str, Any]:
    """Return the start of a turn whose process died."""
    return {"turn_id": stage.ids.agent(), "message_ids": [], "provider": "telling", "attempt": 1}


def test_session_data_has_no_streams(stage: Any) -> None:
    """Saved and runtime data are those of a session that was not recorded."""
    paths = stage.script("subagent.jsonl")
    recorded(stage, paths)
    (path,) = kept(paths)
    for make in (saved_session, partial(runtime_session, stage.services.layout)):
        data = printed(make(paths, stage.state(paths)))
        text = orjson.dumps(data).decode()
        assert ".stream" not in text
        assert data["rawTranscript"] != path.read_text()
    assert [entry["id"] for entry in data["subagents"]] == ["child-1"]


def test_a_lost_turn_of_the_same_number_keeps_its_stream(stage: Any) -> None:
    """The new one is called otherwise; nothing is overwritten."""
    paths = stage.new()
    native = stage.state(paths).native["id"]
    for number in (1, 2):
        left = paths.transcripts / native / f"turn-1{'' if number == 1 else '-2'}.stream"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"left\n") if number == 1 else left.symlink_to("/nowhere")
    streamed = recorded(stage, paths)
    named = stage.log(paths)[-4]["data"]["files"][0]["path"]
    assert named == f"{native}/turn-1-3.stream"
    assert bare(played(paths)[:-1]) == streamed
    assert (paths.transcripts / native / "turn-1.stream").read_bytes() == b"left\n"
    assert stage.send(paths, "next").response == "next"


def test_a_failed_turn_keeps_what_was_streamed(stage: Any) -> None:
    """And an interrupted one, whose open blocks are completed in the stream too."""
    paths = stage.script("fails.jsonl")
    events: list[dict[str, Any]] = []
    with pytest.raises(ProviderError):
        stage.send(paths, on_event=events.append, record=True)
    assert bare(played(paths)[:-1]) == events

    other = stage.new()
    seen: list[dict[str, Any]] = []

    def interrupt(event: dict[str, Any]) -> None:
        seen.append(event)
        if event["type"] == "text_delta" and len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.send(other, "a b c", on_event=interrupt, record=True)
    events = played(other)
    assert bare(events[:-1]) == seen
    assert events[-2]["block"]["content"] == "a "
    assert events[-1]["metadata"]["aborted"] == "interrupt"


def test_a_turn_without_an_event_leaves_no_stream(stage: Any, plugin: Any) -> None:
    """A provider that does not even open has said nothing."""
    plugin("shut", restore='raise ProviderError("closed")')
    paths = stage.new(provider="shut")
    with pytest.raises(ProviderError):
        stage.send(paths, record=True)
    assert kept(paths) == []
    assert problems(paths) == []


def test_a_delta_that_no_json_can_hold_is_cleaned(stage: Any, plugin: Any) -> None:
    """A client may cut within a surrogate pair, count beyond 2^53, or say what is no number."""
    body = r"""
    block = self.transcript.block("assistant_text", "x", self.spec.now(), content="")
    yield stream.block_start("h", dict(block))
    yield stream.text_delta("h", "\ud83d", "main")
    yield stream.metadata_update({"costUSD": float("inf"), "big": 2**60}, "main")
    """
    plugin("cutting", body=body)
    paths = stage.new(provider="cutting")
    recorded(stage, paths)
    events = played(paths)
    assert [e["delta"] for e in events if e["type"] == "text_delta"] == ["\ufffd"]
    assert {"costUSD": None, "big": str(2**60)} in [e.get("metadata") for e in events]


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
block = self.transcript.block("assistant_text", "x", self.spec.now(), content="")
yield stream.block_start("h", block)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
try:
    while True:
        yield stream.text_delta("h", "word " * 20, "main")
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
"""


def test_a_disk_that_refuses_the_stream_is_as_one_that_refuses_the_log(
    stage: Any, plugin: Any
) -> None:
    """Not recorded: nothing more is written; restore ends the turn, and keeps what was said."""
    plugin("wordy", body=FULL)
    paths = stage.new(provider="wordy")
    with pytest.raises(NotRecorded, match=r"turn-1\.stream"):
        stage.send(paths, record=True)
    assert stage.events(paths)[-1] == "block"
    (path,) = kept(paths)
    data = path.read_bytes()
    assert len(data) > 3000
    assert data.endswith(b"\n")
    said = "".join(e.get("delta", "") for e in map(orjson.loads, data.splitlines()))
    assert restore_agent(stage.services, paths).error is None
    assert problems(paths) == []
    assert kept(paths) == []
    findings: list[Finding] = []
    events = list(replay(paths, findings.append, streams=True))
    assert findings == []
    assert [event["type"] for event in events] == [*["block_complete"] * 2, "metadata_update"]
    assert events[1]["block"]["content"] == said


def test_a_folder_that_cannot_be_made_is_a_refusal_too(stage: Any) -> None:
    """A file, or a link, stands where the streams should go."""
    for plant in (lambda path: path.write_bytes(b""), lambda path: path.symlink_to("/tmp")):
        paths = stage.new()
        paths.transcripts.mkdir(exist_ok=True)
        plant(paths.transcripts / stage.state(paths).native["id"])
        with pytest.raises(AgentsdirError):
            stage.send(paths, record=True)
        assert kept(paths) == []
