"""Turns of a real program: its store and our log are level before and after each (D7, D20)."""

from __future__ import annotations

import textwrap
from hashlib import sha256
from typing import Any

import orjson
import pytest

from agentsdir.engine.close import reset
from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import resume, suspend
from agentsdir.engine.validate.files import AgentCheck, CheckCounts
from agentsdir.formats.blocks import block_complete, make_block
from agentsdir.formats.errors import Invalid, ProviderError
from agentsdir.formats.store.agent import read_agent, wrong_files
from agentsdir.schemas import check


@pytest.fixture
def paths(stage: Any, program: Any) -> Any:
    """Return an agent whose provider runs a program."""
    return stage.new(provider=program())


def blocks(stage: Any, paths: Any) -> list[tuple[str | None, str]]:
    """Return turn id and content (or type and status) of every logged block, in order."""
    found = []
    for record in stage.log(paths):
        if record["event"] == "block":
            block = record["data"]["block"]
            said = block.get("content", f"{block['type']} {block.get('status', '')}".strip())
            found.append((record["data"]["turn_id"], said))
    return found


def texts(stage: Any, paths: Any) -> list[str]:
    """Return what every logged block says, in order."""
    return [said for _, said in blocks(stage, paths)]


def sound(paths: Any) -> None:
    """Hold the agent to the format."""
    problems = [one.id for one in AgentCheck(paths, "a", CheckCounts(), modes=True).run()]
    assert [one for one in problems if one != "transcript-unlisted"] == []
    for record in paths.log.read_bytes().splitlines():
        assert check("event", orjson.loads(record)) == []
    assert wrong_files(paths, read_agent(paths, whole=True).state) == []


def main_file(stage: Any, paths: Any) -> Any:
    """Return the client's own transcript."""
    return stage.home / "store" / f"{stage.state(paths).native['id']}.jsonl"


def typed_in_client(stage: Any, paths: Any, *said: str) -> None:
    """Append turns as the real client would, without agentsdir."""
    native = stage.state(paths).native["id"]
    with main_file(stage, paths).open("ab") as file:
        for text in said:
            kind = "user_message" if text.startswith("?") else "assistant_text"
            block = make_block(kind, f"own:{text}", "main", native, stage.now(), None, content=text)
            file.write(orjson.dumps(block_complete(block["id"], block)) + b"\n")


def test_a_turn_stores_the_clients_transcript_and_leaves_no_stream(stage: Any, paths: Any) -> None:
    """The raw stream is kept while the turn runs, and goes when the log has all of it."""
    seen = []

    def look(_event: Any) -> None:
        seen.append(len(list(paths.transcripts.rglob("turn-1.stream"))))

    result = stage.send(paths, "hi", on_event=look)
    assert result.response == "client says hi"
    assert seen == [1, 1]
    assert list(paths.transcripts.rglob("*.stream")) == []
    stored = paths.transcripts / main_file(stage, paths).name
    assert stored.read_bytes() == main_file(stage, paths).read_bytes()
    assert stage.state(paths).transcripts[stored.name]["role"] == "main"
    sound(paths)


def test_a_recorded_stream_of_a_program_stays(stage: Any, paths: Any) -> None:
    """Under --record it is named by the log like any other."""
    stage.send(paths, record=True)
    assert len(list(paths.transcripts.rglob("turn-1.stream"))) == 1
    sound(paths)


def test_turns_made_in_the_real_client_are_logged_before_the_next_one(
    stage: Any, paths: Any
) -> None:
    """Outside any turn of ours, in the order of the transcript, before our own prompt."""
    stage.send(paths, "one")
    typed_in_client(stage, paths, "?mine", "yours")
    stage.send(paths, "two")
    (turn_one, *_), (turn_two, *_) = blocks(stage, paths)[0], blocks(stage, paths)[-1]
    assert blocks(stage, paths) == [
        (turn_one, "one"),
        (turn_one, "client says one"),
        (None, "?mine"),
        (None, "yours"),
        (turn_two, "two"),
        (turn_two, "client says two"),
    ]
    sound(paths)
    assert texts(stage, paths)[2:4] == ["?mine", "yours"]
    before = paths.log.read_bytes()
    assert restore_agent(stage.services, paths).actions == ("suspended",)
    stage.send(paths, "three")
    assert texts(stage, paths).count("yours") == 1
    assert paths.log.read_bytes().startswith(before)


@pytest.mark.parametrize("how", ["shorter", "different", "gone but for a line"])
def test_a_native_file_that_is_another_is_never_gone_on_from(
    stage: Any, paths: Any, how: str
) -> None:
    """Exit 12, nothing overwritten on either side, and the message ends as failed."""
    stage.send(paths, "one")
    file = main_file(stage, paths)
    stored = paths.transcripts / file.name
    kept = stored.read_bytes()
    other = {"shorter": kept[:-10], "different": b"X" + kept[1:], "gone but for a line": b"{}\n"}
    file.write_bytes(other[how])
    with pytest.raises(Invalid) as refused:
        stage.send(paths, "two")
    assert refused.value.kind == "transcript-differs"
    assert (stored.read_bytes(), file.read_bytes()) == (kept, other[how])
    assert stage.events(paths)[-2:] == ["turn.error", "message.delivered"]
    assert stage.state(paths).pending == []
    file.write_bytes(kept)
    assert stage.send(paths, "three").response == "client says three"
    sound(paths)


def test_a_native_file_that_is_missing_is_put_back(stage: Any, paths: Any) -> None:
    """The saved one, before the turn; and the client goes on from it."""
    stage.send(paths, "one")
    file = main_file(stage, paths)
    kept = file.read_bytes()
    file.unlink()
    stage.send(paths, "two")
    assert file.read_bytes().startswith(kept)
    assert texts(stage, paths)[::2] == ["one", "two"]
    sound(paths)


def test_resume_places_what_is_missing_and_starts_nothing(
    stage: Any, paths: Any, program: Any
) -> None:
    """On another machine, say; a refusal leaves the session suspended."""
    stage.send(paths, "one")
    suspend(stage.services, paths)
    file = main_file(stage, paths)
    kept = file.read_bytes()
    file.unlink()
    program(place='raise ProviderError("it is open", kind="session-open")')
    with pytest.raises(ProviderError) as refused:
        resume(stage.services, paths)
    assert refused.value.kind == "session-open"
    assert stage.state(paths).session.state == "suspended"
    program()
    assert resume(stage.services, paths).session.state == "active"
    assert file.read_bytes() == kept
    sound(paths)


ONLY_ON_DISK = """
self.on_disk("assistant_text", "early", content="never streamed")
yield self.streamed("tool_use", "call", toolName="T", toolUseId="t1", input={}, status="running")
self.on_disk("tool_use", "call", toolName="T", toolUseId="t1", input={}, status="success")
self.on_disk("tool_result", "result", toolUseId="t1", output="done", isError=False)
self.child(f"helper{self.spec.turn}", "said in a thread")
yield self.on_disk("assistant_text", "answer", content="the end")
"""


def test_what_only_the_transcript_shows_is_logged_before_the_turn_is_over(
    stage: Any, program: Any
) -> None:
    """Blocks that were not streamed, a status that came later, and a subagent's thread."""
    paths = stage.new(provider=program(body=ONLY_ON_DISK))
    events: list[Any] = []
    result = stage.send(paths, "hi", on_event=events.append)
    assert texts(stage, paths) == [
        "hi",
        "tool_use running",
        "the end",
        "never streamed",
        "tool_use success",
        "tool_result",
        "said in a thread",
    ]
    assert len({turn for turn, _ in blocks(stage, paths)}) == 1
    assert stage.events(paths)[-3:] == ["transcript.synced", "turn.complete", "message.delivered"]
    assert len(events) == 7  # a listener gets all of them
    assert "never streamed" in result.response
    before = len(stage.log(paths))
    program()
    stage.send(paths, "again")
    assert len(stage.log(paths)) == before + 7  # nothing of the first turn is logged again
    sound(paths)


def test_a_block_that_is_gone_from_the_transcript_keeps_its_record(
    stage: Any, program: Any
) -> None:
    """A client may take a row back; what was said was said."""
    body = 'yield self.streamed("assistant_text", "a", content="taken back")'
    paths = stage.new(provider=program(body=body))
    stage.send(paths, "hi")
    assert texts(stage, paths) == ["hi", "taken back"]
    sound(paths)


REWRITES = """
yield self.on_disk("assistant_text", "answer", content="first")
data = self.main.read_bytes().splitlines(keepends=True)
self.main.write_bytes(b"".join(data[:-1]) + data[-1].replace(b"first", b"second"))
"""


def test_a_file_that_the_client_rewrote_in_our_own_turn_is_stored_whole(
    stage: Any, program: Any
) -> None:
    """Atomically, and the log says so; then it grows by its tail again."""
    paths = stage.new(provider=program(body=REWRITES))
    stage.send(paths, "one")
    body = 'self.main.write_bytes(self.main.read_bytes().replace(b"second", b"third"))'
    program(body=body)
    stage.send(paths, "two")
    stored = paths.transcripts / main_file(stage, paths).name
    assert stored.read_bytes() == main_file(stage, paths).read_bytes()
    synced = [one["data"]["files"][0] for one in stage.log(paths) if "files" in one["data"]]
    assert [entry.get("rewritten") for entry in synced] == [None, True]
    assert texts(stage, paths) == ["one", "first", "second", "two", "third"]
    assert list(paths.transcripts.glob(".tmp-*")) == []
    program()
    stage.send(paths, "three")
    sound(paths)


NAMED = "99999999-8888-4777-8666-555555555555"
NAMES_ITSELF = f"""
if self.how == "create":
    self.spec = self.spec._replace(native_id={NAMED!r})
    self.main = self.main.with_name({NAMED!r} + ".jsonl")
    self.transcript = RecordedTranscript(self.spec)
    self.host.on_native_id({NAMED!r})
    self.host.on_native_id({NAMED!r})
yield self.on_disk("assistant_text", "how", content=self.how + " " + self.spec.native_id)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_an_id_that_the_client_chose_is_logged_once_and_gone_on_with(
    stage: Any, program: Any, fails: bool
) -> None:
    """Some clients take none; without its id no turn would find the session again."""
    paths = stage.new(
        provider=program(body=NAMES_ITSELF + "if self.how == 'create': 1 / 0\n" * fails)
    )
    if fails:
        with pytest.raises(ProviderError):
            stage.send(paths, "one")
    else:
        assert stage.send(paths, "one").response == f"create {NAMED}"
    assert stage.state(paths).native["id"] == NAMED
    assert stage.send(paths, "two").response == f"restore {NAMED}"
    changes = [one["data"] for one in stage.log(paths) if one["event"] == "native.changed"]
    assert [(one["native"]["id"], one["reason"]) for one in changes] == [(NAMED, "named")]
    stored = stage.state(paths).transcripts
    assert {entry["native"] for entry in stored.values()} == {NAMED}
    sound(paths)


def test_a_file_that_was_written_anew_between_turns_is_stored_if_it_says_all_that_it_said(
    stage: Any, program: Any
) -> None:
    """Some clients write the whole file at each change; the provider tells what that lost."""
    grows = "set(saved.read().splitlines()) <= set(present.read().splitlines())"
    paths = stage.new(provider=program(grows=grows))
    stage.send(paths, "one")
    native = main_file(stage, paths)
    kept = native.read_bytes()
    typed_in_client(stage, paths, "?by hand")
    native.write_bytes(b"\n" + native.read_bytes())
    stage.send(paths, "two")
    assert texts(stage, paths)[2] == "?by hand"
    stored = paths.transcripts / native.name
    assert stored.read_bytes() == native.read_bytes()
    native.write_bytes(kept)
    with pytest.raises(Invalid, match="shorter"):
        stage.send(paths, "three")
    assert stored.read_bytes() != kept
    sound(paths)


LINKS = """
card = {"subagentId": "a1", "name": "scout", "input": "look", "status": "success"}
late = {"link": {"method": "agentId", "confidence": "exact"}, "durationMs": 619}
event = self.on_disk("subagent", "card", **card, **late)
yield {**event, "block": {k: v for k, v in event["block"].items() if k not in late}}
"""


def test_what_the_transcript_says_of_a_subagent_reaches_the_log(stage: Any, program: Any) -> None:
    """How it is tied to its call, and how long it ran, may be known when its block is logged."""
    paths = stage.new(provider=program(body=LINKS))
    stage.send(paths, "one")
    cards = [one["data"]["block"] for one in stage.log(paths) if one["event"] == "block"][1:]
    assert [(one.get("link", {}).get("confidence"), one.get("durationMs")) for one in cards] == [
        (None, None),
        ("exact", 619),
    ]
    sound(paths)


@pytest.mark.feature("G-02", "G-03")
def test_a_reset_gives_the_next_turn_a_native_session_of_its_own(
    stage: Any, paths: Any, program: Any
) -> None:
    """The old transcript stays stored, is handed to no provider, and is not read any more."""
    stage.send(paths, "one")
    old = main_file(stage, paths)
    before = stage.state(paths).native["id"]
    reset(stage.services, paths, "anew")
    assert stage.events(paths)[-2:] == ["native.changed", "history.reset"]
    state = stage.state(paths)
    assert state.native["id"] != before
    old.write_bytes(b"whatever the client does with it")
    program(body='yield self.on_disk("assistant_text", "how", content=self.how)')
    assert stage.send(paths, "two").response == "create"
    assert stage.send(paths, "three").response == "restore"
    stored = stage.state(paths).synced
    assert {entry["native"] for entry in stored.values()} == {before, state.native["id"]}
    markers = [line for line in paths.history.read_bytes().splitlines() if b'"reset"' in line]
    assert orjson.loads(markers[0])["message"] == "anew"
    sound(paths)


@pytest.mark.parametrize("name", ["costUSD", "costUsd"])
def test_tokens_and_cost_are_recorded_and_summed(stage: Any, program: Any, name: str) -> None:
    """Of failed turns too; a client that names no cost leaves it unknown.

    An adapter may use the name that events had in older versions; events of ours have the new one.
    """
    spends = f"""
    counts = {{"inputTokens": 3, "outputTokens": 2, "cacheReadTokens": 0, "cacheWriteTokens": 0}}
    yield stream.metadata_update({{"usage": counts, "{name}": 0.25}}, "main")
    """
    spends = textwrap.dedent(spends)
    fails = spends + "raise ProviderError('too much', kind='rate-limited')"
    paths = stage.new(provider=program(body=spends))
    shown: list[dict[str, Any]] = []
    assert stage.send(paths, on_event=shown.append).cost == 0.25
    said = [event["metadata"] for event in shown if event["type"] == "metadata_update"]
    assert [{key for key in one if "cost" in key} for one in said] == [{"costUSD"}]
    program(body=fails)
    with pytest.raises(ProviderError):
        stage.send(paths)
    ends = [e["metadata"] for e in replay(paths, [].append) if e["type"] == "metadata_update"]
    assert [(end["costUSD"], end["usage"]["totalTokens"]) for end in ends] == [(0.25, 5)] * 2
    assert "error" in ends[1]
    state = stage.state(paths)
    assert (state.cost, state.usage["totalTokens"]) == (0.5, 10)
    assert stage.log(paths)[-2]["data"]["cost_usd"] == 0.25
    sound(paths)
    echo = stage.new()
    stage.send(echo)
    assert stage.state(echo).cost is None


def test_a_suspension_needs_no_client(stage: Any, paths: Any) -> None:
    """No session is opened for a blob that no turn needs."""
    stage.send(paths)
    assert suspend(stage.services, paths).session.provider_state == b""
    assert stage.send(paths).outcome == "completed"
    sound(paths)


HALF = """
yield from self.begun("answer", "half of an ans")
yield from self.begun("other", "")
yield self.on_disk("tool_use", "call", toolName="T", toolUseId="t1", input={}, status="running")
"""


@pytest.mark.parametrize("who", ["restore", "send"])
def test_what_was_streamed_before_a_crash_is_kept(stage: Any, program: Any, who: str) -> None:
    """The client loses the message that it was writing; the stream had it, and then goes."""
    paths = stage.new(provider=program(body=HALF))
    kept = snapshots(stage, paths, lambda: stage.send(paths, "hi"))
    moment = next(tree for tree in reversed(kept) if b"turn.complete" not in log_of(tree))
    put(paths, moment)
    (stream_file,) = paths.transcripts.rglob("*.stream")
    stream_file.write_bytes(stream_file.read_bytes() + b'{"type": "text_del')
    program()
    if who == "send":
        stage.send(paths, "again")
    else:
        assert restore_agent(stage.services, paths).error is None
    assert "half of an ans" in texts(stage, paths)
    assert list(paths.transcripts.rglob("*.stream")) == []
    assert restore_agent(stage.services, paths).error is None
    assert restore_agent(stage.services, paths).actions == ()
    sound(paths)


CALLING = """
call = {"toolName": "T", "toolUseId": "t1", "input": {"a": 1}}
block = self.transcript.block("tool_use", "call", self.spec.now(), status="running", **call)
yield stream.block_start("c", block)
from agentsdir.formats.errors import Terminated
raise Terminated
"""


def died_calling(stage: Any, paths: Any) -> None:
    """Put back the moment at which only the stream has a call."""

    def send() -> None:
        with pytest.raises(SystemExit):
            stage.send(paths, "hi")

    kept = snapshots(stage, paths, send)
    put(paths, next(tree for tree in reversed(kept) if b'"T"' not in log_of(tree)))


def test_a_call_that_only_the_stream_knew_when_all_died_is_kept_and_answered(
    stage: Any, program: Any
) -> None:
    """Some clients write a call down when it is over. One whose input still came was not made."""
    paths = stage.new(provider=program(body=CALLING))
    died_calling(stage, paths)
    (stream_file,) = paths.transcripts.rglob("*.stream")
    begun = stream_file.read_bytes().splitlines()[-1]
    half = orjson.loads(begun.replace(b":call", b":half").replace(b'"t1"', b'"t2"'))
    half["block"] |= {"status": "pending", "input": {}}
    stream_file.write_bytes(stream_file.read_bytes() + orjson.dumps({**half, "blockId": "d"}))
    assert restore_agent(stage.services, paths).error is None
    made = [one["data"]["block"] for one in stage.log(paths) if one["event"] == "block"][1:]
    assert [(one["type"], one["toolUseId"], one.get("status")) for one in made] == [
        ("tool_use", "t1", "running"),
        ("tool_result", "t1", None),
        ("tool_use", "t1", "error"),
    ]
    assert made[1]["synthetic"]
    assert restore_agent(stage.services, paths).actions == ()
    sound(paths)


def test_such_a_call_gives_way_to_the_one_that_the_client_writes_down_after_all(
    stage: Any, program: Any
) -> None:
    """A client that lived on told its file, under an id that the stream did not know."""
    paths = stage.new(provider=program(body=CALLING))
    died_calling(stage, paths)
    assert restore_agent(stage.services, paths).error is None
    native = stage.state(paths).native["id"]
    call = {"toolName": "T", "toolUseId": "t1", "input": {"a": 1}, "status": "success"}
    result = {"toolUseId": "t1", "output": "done", "isError": False}
    with main_file(stage, paths).open("ab") as file:
        for kind, fields in (("tool_use", call), ("tool_result", result)):
            block = make_block(kind, f"own:{kind}", "main", native, stage.now(), None, **fields)
            file.write(orjson.dumps(block_complete(block["id"], block)) + b"\n")
    with pytest.raises(SystemExit):
        stage.send(paths, "again")
    last = {}
    for record in stage.log(paths):
        if record["event"] == "block" and record["data"]["block"].get("toolUseId") == "t1":
            last[record["data"]["block"]["id"]] = record["data"]["block"].get("superseded", False)
    kept = {name: gone for name, gone in last.items() if name.split(":")[1] == "1"}
    assert list(kept.values()) == [True, True]
    assert [last["own:tool_use"], last["own:tool_result"]] == [False, False]
    sound(paths)


def snapshots(stage: Any, paths: Any, act: Any) -> list[dict[str, bytes]]:
    """Return the agent's folder as it stood before each append of a command, and after it."""
    kept: list[dict[str, bytes]] = []
    clock = type(stage).now

    def now() -> str:
        # The engine asks for the time just before each append.
        kept.append(tree_of(paths))
        return str(clock(stage))

    stage.now = now
    try:
        act()
    finally:
        del stage.now
    return [*kept, tree_of(paths)]


def tree_of(paths: Any) -> dict[str, bytes]:
    """Return every file of an agent's folder but the locks."""
    return {
        path.relative_to(paths.folder).as_posix(): path.read_bytes()
        for path in paths.folder.rglob("*")
        if path.is_file() and path.name not in (".lock", ".turn")
    }


def log_of(tree: dict[str, bytes]) -> bytes:
    """Return the log in such a tree."""
    return tree["events.jsonl"]


def put(paths: Any, tree: dict[str, bytes]) -> None:
    """Make an agent's folder hold these files and no others."""
    for name in tree_of(paths).keys() - tree.keys():
        (paths.folder / name).unlink()
    for name, data in tree.items():
        path = paths.folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
        path.write_bytes(data)
        path.chmod(0o600)


@pytest.mark.parametrize("body", [ONLY_ON_DISK, REWRITES], ids=["appends", "rewrites"])
def test_a_turn_that_dies_between_any_two_appends_is_gone_on_from(
    stage: Any, program: Any, body: str
) -> None:
    """The client has its whole transcript by then; nothing is lost, doubled or refused."""
    paths = stage.new(provider=program(body=body))
    stage.send(paths, "before")
    typed_in_client(stage, paths, "?mine", "yours")
    file = main_file(stage, paths)
    kept = snapshots(stage, paths, lambda: stage.send(paths, "now"))
    whole, native = set(texts(stage, paths)), file.read_bytes()
    program()
    for moment in kept:
        put(paths, moment)
        file.write_bytes(native)
        assert restore_agent(stage.services, paths).error is None
        assert restore_agent(stage.services, paths).actions == ()
        assert stage.send(paths, "after").outcome == "completed"
        said = texts(stage, paths)
        assert whole <= {*said, "tool_use running"}, set(whole) - set(said)
        assert said.count("yours") == 1
        stored = paths.transcripts / file.name
        assert stored.read_bytes() == file.read_bytes()
        sound(paths)


def test_a_reset_that_dies_in_the_middle_sends_no_old_turn_after_a_marker(
    stage: Any, paths: Any
) -> None:
    """Either both stand in the log, or no marker does."""
    stage.send(paths, "one")
    native = stage.state(paths).native["id"]
    for moment in snapshots(stage, paths, lambda: reset(stage.services, paths)):
        put(paths, moment)
        assert restore_agent(stage.services, paths).error is None
        if "history.reset" in stage.events(paths):
            assert stage.state(paths).native["id"] != native


@pytest.mark.parametrize("who", ["restore", "send"])
def test_a_rewritten_copy_that_the_log_names_is_put_in_place(
    stage: Any, program: Any, who: str
) -> None:
    """By the next command after a writer that died between the record and the rename."""
    paths = stage.new(provider=program(body=REWRITES))
    stage.send(paths, "one")
    name = main_file(stage, paths).name
    old = (paths.transcripts / name).read_bytes()
    body = 'self.main.write_bytes(self.main.read_bytes().replace(b"second", b"third"))'
    program(body=body)
    kept = snapshots(stage, paths, lambda: stage.send(paths, "two"))
    moment = next(tree for tree in kept if log_of(tree).splitlines()[-1].count(b'"rewritten"'))
    new = moment[f"transcripts/{name}"]
    copy = f"transcripts/.tmp-{name}-{sha256(new).hexdigest()[:16]}"
    put(paths, {**moment, f"transcripts/{name}": old, copy: new})
    program()
    if who == "restore":
        planned = restore_agent(stage.services, paths, dry_run=True).actions
        assert f"put {name} in place" in planned
        assert restore_agent(stage.services, paths).actions == planned
        assert (paths.transcripts / name).read_bytes() == new
    assert stage.send(paths, "three").outcome == "completed"
    assert list(paths.transcripts.glob(".tmp-*")) == []
    sound(paths)
