"""Saved and runtime session data, and reading transcripts through the engine."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import printed
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.output import document_pieces
from agentsdir.engine.lookup import list_row
from agentsdir.engine.parse import find_sessions, parse_all, walk
from agentsdir.engine.parse_report import ParseReport
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.session_data import runtime_session, saved_session
from agentsdir.engine.slots import suspend
from agentsdir.formats.errors import NotATranscript
from agentsdir.formats.jsontext import LongList, LongText
from agentsdir.formats.source import Source


@pytest.mark.feature("B-02")
def test_saved_data_is_the_list_row_and_raw_transcripts_and_never_blocks(stage: Any) -> None:
    """The transcript is the stored file, to the byte."""
    paths = stage.script("tools.jsonl")
    stage.send(paths)
    state = stage.state(paths)
    saved = printed(saved_session(paths, state))
    row = list_row(paths, state)
    assert {name: saved[name] for name in row} == row
    (stored,) = paths.transcripts.glob("*.jsonl")
    assert saved["rawTranscript"].encode() == stored.read_bytes()
    assert saved["workspaceFiles"] == []
    assert saved["subagents"] == []
    assert "blocks" not in saved


@pytest.mark.feature("B-02")
def test_runtime_data_is_saved_data_with_its_transcripts_parsed(stage: Any) -> None:
    """The same blocks as the log has, subagents in threads of their own."""
    paths = stage.script("subagent.jsonl")
    stage.send(paths)
    state = stage.state(paths)
    saved, runtime = (
        printed(saved_session(paths, state)),
        printed(runtime_session(stage.services.layout, paths, state)),
    )
    assert {**runtime, "subagents": saved["subagents"]} == {
        **saved,
        "blocks": runtime["blocks"],
    }
    logged = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    last = {block["id"]: block for block in logged if block["conversationId"] == "main"}
    assert {b["id"]: b["type"] for b in runtime["blocks"]} == {
        key: block["type"] for key, block in last.items()
    }
    (child,) = runtime["subagents"]
    assert child["id"] == "child-1"
    assert [block["type"] for block in child["blocks"]] == [
        "system",
        "assistant_text",
        "system",
    ]


@pytest.mark.feature("B-02")
def test_a_session_that_never_ran_has_no_transcript_and_no_blocks(stage: Any) -> None:
    """Saying so, not failing."""
    paths = stage.new()
    assert printed(saved_session(paths, stage.state(paths)))["rawTranscript"] is None
    assert (
        printed(runtime_session(stage.services.layout, paths, stage.state(paths)))["blocks"] == []
    )


def test_a_transcript_that_is_no_utf_8_is_handed_out_in_base64(stage: Any) -> None:
    """Not a byte is lost."""
    paths = stage.new()
    stage.send(paths)
    (stored,) = paths.transcripts.glob("*.jsonl")
    stored.write_bytes(b"\xff\xfe")
    saved = printed(saved_session(paths, stage.state(paths)))
    assert saved["rawTranscriptBase64"] == "//4="
    assert "rawTranscript" not in saved


def test_a_transcript_that_is_lost_is_left_out(stage: Any) -> None:
    """The log still says that it was there."""
    paths = stage.new()
    stage.send(paths)
    for stored in paths.transcripts.glob("*.jsonl"):
        stored.unlink()
    assert printed(saved_session(paths, stage.state(paths)))["rawTranscript"] is None


def blocks_of(*sources: Source, adapter: str = "auto", view: Any = "live") -> list[dict[str, Any]]:
    """Parse sources and return their blocks."""
    rejected: list[NotATranscript] = []
    found = find_sessions(sources, adapter, rejected.append)
    assert rejected == []
    lines = b"".join(parse_all(found, ParseReport(view), hidden=False)).splitlines()
    return [orjson.loads(line) for line in lines]


@pytest.mark.feature("C-07")
def test_a_stored_transcript_gives_the_blocks_that_were_streamed(stage: Any) -> None:
    """Stream path and file path are one: id, type, content, pairing and conversation."""
    for name in ("tools.jsonl", "subagent.jsonl", "thinking.jsonl"):
        paths = stage.script(name)
        stage.send(paths)
        (stored,) = paths.transcripts.glob("*.jsonl")
        parsed = blocks_of(Source(stored.name, path=stored))
        logged = {
            (e["data"]["block"]["conversationId"], e["data"]["block"]["id"]): e["data"]["block"]
            for e in stage.log(paths)
            if e["event"] == "block"
        }
        assert len(parsed) == len(logged)
        for block in parsed:
            other = logged[block["conversationId"], block["id"]]
            assert {**block, "source": None} == {**other, "source": None}


def test_a_folder_is_walked_in_order_and_through_links_but_round_no_loop(tmp_path: Path) -> None:
    """Every file once, named as the folder was named."""
    (tmp_path / "b").mkdir()
    for name in ("b/2.jsonl", "a.jsonl", "c.json", "note.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "d").symlink_to(tmp_path / "b")
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo.jsonl")
    assert [source.name for source in walk(tmp_path, "given", [].append)] == [
        "given/a.jsonl",
        "given/c.json",
        "given/b/2.jsonl",
    ]


def test_a_report_accounts_for_every_line_of_every_session(stage: Any, tmp_path: Path) -> None:
    """Two sessions, damage in one, an unknown row in the other."""
    names = []
    for number, script in enumerate(("tools.jsonl", "subagent.jsonl")):
        paths = stage.script(script)
        stage.send(paths)
        (stored,) = paths.transcripts.glob("*.jsonl")
        copy = tmp_path / f"{number}.jsonl"
        copy.write_bytes(stored.read_bytes() + [b'{"a":1}\n\n', b"#\ntorn"][number])
        names.append(copy)
    report = ParseReport()
    found = find_sessions(
        [Source(path.name, path=path) for path in names], "auto", lambda error: None
    )
    printed = b"".join(parse_all(found, report, hidden=False)).splitlines()
    document = report.as_json()
    total = sum(path.read_bytes().count(b"\n") for path in names) + 1
    counts = ("parsed", "hidden", "folded", "damaged")
    assert document["lines"] == total == sum(document[name] for name in counts)
    assert (document["damaged"], document["hidden"]) == (2, 2)
    assert [finding["id"] for finding in document["findings"]] == ["bad-json", "torn-tail"]
    assert sum(document["blocks"].values()) == len(printed)
    assert report.damaged
    assert set(document["conversations"]) == {
        "0.jsonl/main",
        "1.jsonl/main",
        "1.jsonl/child-1",
    }
    json.dumps(document)


ODD = b'\xff\xfe no UTF-8\r\n{"half": \n\x00\x00\n{"type":"of tomorrow","n":1e999}\n\n'


@pytest.mark.feature("B-03")
def test_a_raw_transcript_is_kept_byte_for_byte_whatever_it_holds(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """Across turns, a suspension and a restoration; nothing is parsed, mended or left out."""
    body = f"yield self.answer('hi')\nself.transcript._data += {ODD!r}"
    paths = stage.new(provider=plugin("odd", body=body))
    kept = b""
    for turn in range(1, 4):
        stage.send(paths, f"prompt {turn}")
        (path,) = paths.transcripts.glob("*.jsonl")
        data = path.read_bytes()
        assert data.startswith(kept)
        assert data.count(ODD) == turn
        assert f"prompt {turn}".encode() in data[len(kept) :]
        kept = data
        if turn == 1:
            suspend(stage.services, paths)
        else:
            restore_agent(stage.services, paths)
        assert path.read_bytes() == kept
    entry = stage.state(paths).transcripts[path.name]
    assert (entry["size"], entry["sha256"]) == (len(kept), hashlib.sha256(kept).hexdigest())
    saved = printed(saved_session(paths, stage.state(paths)))
    assert base64.b64decode(saved["rawTranscriptBase64"]) == kept


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
LONG = st.lists(st.text()).map(lambda texts: (LongText(lambda: texts), "".join(texts))) | st.lists(
    PLAIN
).map(lambda items: (LongList(lambda: [orjson.dumps(one) + b"\n" for one in items]), items))
DOCUMENTS = st.recursive(
    LONG | PLAIN.map(lambda value: (value, value)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda pairs: tuple(map(list, zip(*pairs, strict=True))))
        | st.dictionaries(st.text(), inner, max_size=3).map(
            lambda pairs: tuple({key: pair[at] for key, pair in pairs.items()} for at in (0, 1))
        )
    ).filter(lambda pair: len(pair) == 2),
    max_leaves=8,
)


@given(DOCUMENTS)
def test_a_document_in_pieces_is_the_whole_document(pair: tuple[Any, Any]) -> None:
    """Its bytes are those of one that is held, wherever its long texts and lists stand."""
    in_pieces, whole = pair

    assert b"".join(document_pieces(in_pieces)) == orjson.dumps(whole, option=orjson.OPT_INDENT_2)
