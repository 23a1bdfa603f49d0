"""Recorded stream events: the transcripts of `echo` and `script`, and script files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters import registry
from agentsdir.adapters.echo import words_of
from agentsdir.adapters.protocol import Architecture, LiveReader, ProgramProvider, SessionSpec
from agentsdir.adapters.recorded import RecordedReader, RecordedTranscript, is_prompt
from agentsdir.adapters.script import load_script
from agentsdir.formats.blocks import EVENT_TYPES
from agentsdir.formats.errors import ProviderError, UsageError
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

SCRIPTS = sorted((Path(__file__).parents[3] / "fixtures" / "script").glob("*.jsonl"))


def spec(**changes: Any) -> SessionSpec:
    """Return what a provider gets."""
    fixed: dict[str, Any] = {
        "native_id": "native",
        "model": "m",
        "system_prompt": "",
        "cwd": "/",
        "now": lambda: "2026-01-02T03:04:05.000000Z",
        "sleep": lambda seconds: None,
        "new_id": lambda: "00000000-0000-4000-8000-000000000000",
        "turn": 1,
    }
    return SessionSpec(**{**fixed, **changes})


def parse(data: bytes, *, hidden: bool = False) -> ParseSink:
    """Read a transcript from memory."""
    sink = ParseSink(hidden=hidden)
    reader = RecordedReader()
    for files in reader.discover([Source("f", data=data)]):
        reader.parse_transcripts(files, sink)
    return sink


def line(kind: str, **fields: Any) -> bytes:
    """Return one event as a line."""
    return orjson.dumps({"type": kind, "conversationId": "main", **fields}) + b"\n"


def text(content: str, block_id: str = "b", **more: Any) -> dict[str, Any]:
    """Return a text block."""
    return {
        "type": "assistant_text",
        "id": block_id,
        "conversationId": "main",
        "sessionId": "s",
        "timestamp": None,
        "content": content,
        **more,
    }


def run(name: str, spec_: SessionSpec, prompts: list[Any]) -> tuple[list[Any], bytes]:
    """Run turns through a provider and return its events and transcript."""
    provider = registry.get(name).provider
    assert provider is not None
    events: list[Any] = []
    saved = b""
    for turn, prompt in enumerate(prompts, 1):
        transcripts = {"native.jsonl": Source("native.jsonl", data=saved)} if saved else {}
        now = spec(options=spec_.options, turn=turn, transcripts=transcripts, cwd=spec_.cwd)
        session = provider.restore(now, b"") if saved else provider.create(now)
        events += list(session.send(prompt))
        (native,) = session.transcripts()
        whole = native.source.read()
        assert whole.startswith(saved)
        saved = whole
        session.stop()
    return events, saved


@pytest.mark.feature("B-06", "C-10")
@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_adapter_keeps_the_contract(name: str) -> None:
    """It is an Architecture of that name, with one side at least."""
    architecture = registry.get(name)
    assert isinstance(architecture, Architecture)
    assert architecture.name == name
    assert architecture.reader or architecture.provider


@pytest.mark.feature("B-06")
@pytest.mark.parametrize("name", ["claude", "gemini"])
def test_the_adapter_of_a_real_client_has_both_sides_whole(name: str) -> None:
    """Its store and its output are read, and its program is run; both name the same client."""
    architecture = registry.get(name)
    assert isinstance(architecture.reader, LiveReader)
    assert isinstance(architecture.provider, ProgramProvider)
    paths = architecture.reader.paths(Path("/home/me"), Path("/w"), {})
    assert paths.transcripts.is_relative_to(paths.storage)
    assert paths.storage.is_relative_to("/home/me")


@pytest.mark.parametrize("name", ["", "nobody", "../echo", "echo\n", "ECHO", "a.b"])
def test_an_unknown_adapter_is_named_with_those_that_are_known(name: str) -> None:
    """A usage error with its own kind."""
    with pytest.raises(UsageError) as unknown:
        registry.get(name)
    assert unknown.value.kind == "no-such-adapter"
    assert "echo" in str(unknown.value.hint)


@pytest.mark.feature("B-05")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_echo_streams_the_prompt_word_by_word_and_nothing_is_lost(prompt: str) -> None:
    """The deltas put together are the prompt, whatever its white space."""
    events, _ = run("echo", spec(), [prompt])
    deltas = [event["delta"] for event in events if event["type"] == "text_delta"]
    assert "".join(deltas) == prompt
    assert events[0]["block"]["content"] == prompt
    assert events[-2]["block"]["content"] == prompt
    assert {event["type"] for event in events} <= set(EVENT_TYPES)


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=3))
def test_what_a_provider_streamed_is_what_its_transcript_says(prompts: list[str]) -> None:
    """Line by line, over turns that each reopen the session."""
    events, transcript = run("echo", spec(), prompts)
    assert [orjson.loads(raw) for raw in transcript.splitlines()] == events
    completed = [event["block"] for event in events if event["type"] == "block_complete"]
    parsed = [{**block, "source": None} for block in parse(transcript).blocks()]
    assert parsed == completed


def test_the_prompts_of_a_saved_transcript_are_counted() -> None:
    """On the main thread, complete ones only; a missing last line feed does no harm."""
    prompt = line("block_complete", blockId="p", block={"type": "user_message", "id": "p"})
    child = orjson.dumps(
        {"type": "block_complete", "conversationId": "c", "block": {"type": "user_message"}}
    )
    start = line("block_start", blockId="p", block={"type": "user_message", "id": "p"})
    saved = prompt + child + b"\n" + start + b'{"user_message"\n' + prompt[:-1]
    transcript = RecordedTranscript(spec(), Source("t", data=saved))
    assert transcript.prompts == 2
    assert transcript.files()[0].source.read() == saved + b"\n"
    assert is_prompt(orjson.loads(prompt))


@pytest.mark.feature("C-10")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_fixture_can_be_loaded_and_read_as_a_transcript_of_events(path: Path) -> None:
    """Its turns can be played."""
    script = load_script(path)
    assert script.turn(1)
    given = spec(options={"file": str(path)})
    if path.stem == "fails":
        with pytest.raises(ProviderError, match="try later"):
            run("script", given, ["hi"])
        return
    events, transcript = run("script", given, ["hi"])
    assert len(list(parse(transcript).blocks())) >= 2
    assert events[0]["block"]["content"] == "hi"


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.stem not in ("fails", "sleeps")])
def test_a_script_gets_ids_and_times_of_the_session_it_plays_in(path: Path) -> None:
    """Two turns never share a block id."""
    events, _ = run("script", spec(options={"file": str(path)}), ["one", "two"])
    completed = [event["block"] for event in events if event["type"] == "block_complete"]
    by_turn = [
        {block["id"] for block in completed if block["id"].startswith(f"native:{turn}:")}
        for turn in (1, 2)
    ]
    assert not by_turn[0] & by_turn[1]
    assert by_turn[0] | by_turn[1] == {block["id"] for block in completed}
    assert {block["timestamp"] for block in completed} == {"2026-01-02T03:04:05.000000Z"}
    assert {block["sessionId"] for block in completed} == {"native"}


def test_a_script_without_turn_marks_is_played_for_every_prompt(tmp_path: Path) -> None:
    """One with marks is played turn by turn, and is then over."""
    path = tmp_path / "s.jsonl"
    delta = line("metadata_update", metadata={"n": 1})
    path.write_bytes(delta)
    assert load_script(path).turn(1) == load_script(path).turn(99) == [orjson.loads(delta)]
    path.write_bytes(b'{"type":"turn"}\n' + delta + b'{"type":"turn"}\n\n')
    script = load_script(path)
    assert (len(script.turn(1)), script.turn(2)) == (1, [])
    with pytest.raises(ProviderError) as over:
        script.turn(3)
    assert over.value.kind == "script-ended"


def test_a_recorded_failure_fails_the_turn_that_plays_it(tmp_path: Path) -> None:
    """As `replay --events` writes it."""
    path = tmp_path / "s.jsonl"
    error = {"kind": "rate-limited", "message": "try later"}
    path.write_bytes(line("metadata_update", metadata={"turnId": "t", "error": error}))
    assert load_script(path).turn(1) == [{"type": "error", **error}]
    path.write_bytes(line("metadata_update", metadata={"error": "a word of the client's"}))
    assert load_script(path).turn(1)[0]["type"] == "metadata_update"
    path.write_bytes(line("metadata_update", metadata={"error": error}, conversationId="a task"))
    assert load_script(path).turn(1)[0]["type"] == "metadata_update"


@pytest.mark.parametrize("reason", ["timeout", "interrupt", "crash"])
def test_a_recorded_abort_fails_the_turn_that_plays_it(tmp_path: Path, reason: str) -> None:
    """As `replay --events` writes it; such a turn did not go well either."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line("metadata_update", metadata={"turnId": "t", "aborted": reason}))
    (failure,) = load_script(path).turn(1)
    assert (failure["type"], failure["kind"], reason in failure["message"]) == (
        "error",
        "aborted",
        True,
    )


def test_a_turn_that_failed_before_anything_was_said_is_a_turn_of_its_own(tmp_path: Path) -> None:
    """A recording has no prompt of it."""
    path = tmp_path / "s.jsonl"
    block = {"type": "user_message", "id": "p", "content": "x"}
    prompt = line("block_complete", blockId="p", block=block)
    done = line("metadata_update", metadata={"turnId": "t", "stopReason": "end_turn"})
    failed = line("metadata_update", metadata={"turnId": "t", "error": {"kind": "no-client"}})

    path.write_bytes(prompt + done + failed + failed + prompt + failed + prompt + done)

    script = load_script(path)
    kinds = [[one["type"] for one in script.turn(number)] for number in range(1, 6)]
    ended, error = ["metadata_update"], ["error"]
    assert kinds == [ended, error, error, error, ended]


def test_lines_before_the_first_turn_mark_are_a_turn_of_their_own(tmp_path: Path) -> None:
    """A prompt marks a turn too, and gives way to the prompt that is sent."""
    path = tmp_path / "s.jsonl"
    delta = line("metadata_update", metadata={"n": 1})
    block = {"type": "user_message", "id": "p", "content": "x"}
    prompt = line("block_complete", blockId="p", block=block)
    path.write_bytes(delta + prompt + delta + delta)
    script = load_script(path)
    assert (len(script.turn(1)), len(script.turn(2))) == (1, 2)
    path.write_bytes(prompt + delta)
    assert load_script(path).turn(1) == [orjson.loads(delta)]


BAD_SCRIPTS = {
    "no JSON": (b"{\n", ":1: "),
    "bad UTF-8": (b'{"type":"\xff"}\n', ":1: "),
    "no object": (b"[]\n", "no JSON object"),
    "an unknown line": (b'{"type":"jump"}\n', "'jump' is no stream event"),
    "no type": (b"{}\n", "None is no stream event"),
    "a block without id": (
        line("block_complete", blockId="x", block={"type": "assistant_text"}),
        "needs id",
    ),
    "a delta without text": (line("text_delta", blockId="x"), "needs delta"),
    "an update without fields": (line("block_update", blockId="x"), "needs updates"),
    "no handle": (line("block_complete", block={"type": "a", "id": "b"}), "needs blockId"),
    "the second line": (b'{"type":"turn"}\n{"type":"jump"}\n', ":2: "),
}


@pytest.mark.parametrize(("data", "said"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
def test_a_bad_script_is_refused_with_its_file_line_and_reason(
    tmp_path: Path, data: bytes, said: str
) -> None:
    """Before anything of it is played."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    with pytest.raises(ProviderError) as refused:
        load_script(path)
    assert refused.value.kind == "bad-script"
    assert str(path) in refused.value.message
    assert said in refused.value.message


@pytest.mark.parametrize("options", [{}, {"file": "nowhere.jsonl"}, {"file": "."}])
def test_a_script_that_is_missing_is_a_providers_error(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Not a crash."""
    provider = registry.get("script").provider
    assert provider is not None
    with pytest.raises(ProviderError) as missing:
        provider.create(spec(options=options, cwd=str(tmp_path)))
    assert missing.value.kind == "bad-script"


def test_a_script_is_looked_for_in_the_agents_working_directory(tmp_path: Path) -> None:
    """Unless its path is absolute."""
    (tmp_path / "s.jsonl").write_bytes(line("metadata_update", metadata={}))
    events, _ = run("script", spec(options={"file": "s.jsonl"}, cwd=str(tmp_path)), ["x"])
    assert events[-1]["type"] == "metadata_update"


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        (line("text_delta", blockId="x", delta="y"), True),
        (b"#\n\n" + line("metadata_update", metadata={}), True),
        (line("text_delta", blockId="x", delta="y")[:-5], False),
        (b'{"type":"text_delta","blockId":"x","delta":"y"}\n', False),
        (b'{"type":"user","message":{}}\n', False),
        (b"", False),
        (b"\xff\0", False),
        (b"[" * 10_000, False),
        (b"#\n" * 20 + line("metadata_update", metadata={}), False),
    ],
)
def test_recorded_events_are_recognised_by_their_content(head: bytes, ours: bool) -> None:
    """From the first lines, whatever else stands there."""
    assert RecordedReader().detect(head, "any name") is ours


def test_blocks_left_open_by_a_cut_are_given_as_far_as_they_came() -> None:
    """Start, deltas and updates are folded; the completed ones come first."""
    sink = parse(
        line("block_start", blockId="1", block=text("", "1"))
        + line("text_delta", blockId="1", delta="so ")
        + line("text_delta", blockId="1", delta="far")
        + line("block_update", blockId="1", updates={"model": "m"})
        + line("block_complete", blockId="2", block=text("done", "2"))
    )
    blocks = {block["id"]: block for block in sink.blocks()}
    assert blocks["1"]["content"] == "so far"
    assert blocks["1"]["model"] == "m"
    assert blocks["2"]["content"] == "done"
    assert (sink.tally.folded, sink.tally.parsed, sink.tally.lines) == (4, 1, 5)


def test_a_block_that_is_completed_again_replaces_the_first() -> None:
    """The first is in the view of all, marked."""
    sink = parse(
        line("block_complete", blockId="1", block=text("old"))
        + line("block_complete", blockId="1", block=text("new"))
    )
    assert [block["content"] for block in sink.blocks()] == ["new"]
    assert [block.get("superseded") for block in sink.blocks("all")] == [True, None]


def test_usage_counts_once_for_each_block_that_has_it() -> None:
    """Garbage counts as nothing."""
    usage = {"inputTokens": 2, "outputTokens": 3, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    sink = parse(
        line("block_complete", blockId="1", block=text("a", "1", usage=usage))
        + line("block_complete", blockId="2", block=text("b", "2", usage="many"))
    )
    assert sink.usage()["totalTokens"] == 5


def test_an_unknown_row_is_a_hidden_block_with_a_stable_id() -> None:
    """Shown only where it is asked for; nothing is dropped."""
    row = b'{"type":"novelty","x":1}\n'
    assert list(parse(row).blocks()) == []
    assert parse(row).tally.hidden == 1
    (block,) = parse(row, hidden=True).blocks()
    assert (block["type"], block["hidden"]) == ("system", True)
    assert block["metadata"]["row"] == {"type": "novelty", "x": 1}


ROW = st.dictionaries(
    st.sampled_from(["type", "conversationId", "blockId", "block", "delta", "updates", "metadata"]),
    st.one_of(
        st.sampled_from([*EVENT_TYPES, "main", "b", None, 5, True, [], "\ud800"]),
        st.dictionaries(
            st.sampled_from(["type", "id", "conversationId", "sessionId", "content", "usage"]),
            st.sampled_from(["assistant_text", "main", "x", None, 7, {}, []]),
        ),
    ),
)


@given(st.lists(ROW, max_size=5), st.booleans())
def test_reading_rows_of_any_shape_never_raises(rows: list[dict[str, Any]], hidden: bool) -> None:
    """Every line is accounted for."""
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    sink = parse(data, hidden=hidden)
    tally = sink.tally
    assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines == len(rows)
    list(sink.blocks("all"))


@given(st.text("ab \n\t\u2003\x1f\x85é", max_size=12))
def test_echo_says_a_text_word_by_word(text: str) -> None:
    """Each with the space after it, so that the words are the text."""
    assert list(words_of(text)) == re.findall(r"\S+\s*|\s+", text)
