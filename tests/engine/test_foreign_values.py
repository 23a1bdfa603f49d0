"""Values of others that would not come back: cleaned in the block, which says why (D6)."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import orjson
import pytest

from agentsdir.engine.parse import find_sessions, parse_all
from agentsdir.engine.parse_report import ParseReport
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import suspend
from agentsdir.engine.validate.files import validate
from agentsdir.formats import jsontext
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import read_agent
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("S-05")

# JSON text of a value, and the reason that a block which holds it must give.
FOREIGN = {
    "a lone surrogate": (rb'"a\ud800b"', "lone-surrogate"),
    "half a pair in a key": (rb'{"\udfff": 1}', "lone-surrogate"),
    "no number": (b"NaN", "non-finite"),
    "infinity": (b"[-Infinity]", "non-finite"),
    "lists without end": (b"[" * 300 + b"]" * 300, "too-deep"),
    "objects without end": (b'{"a":' * 200 + b"1" + b"}" * 200, "too-deep"),
    "no UTF-8": (b'"a\xffb"', "bad-utf8"),
}

UUID = "4f0e43f5-821f-4fde-bae8-836b4606424"
CLAUDE = (
    b'{"parentUuid":null,"isSidechain":false,"type":"user","uuid":"' + UUID.encode() + b'1",'
    b'"sessionId":"s","version":"2.1.98","timestamp":"2026-01-02T03:04:05.678Z",'
    b'"message":{"role":"user","content":"hi"}}\n'
    b'{"parentUuid":"' + UUID.encode() + b'1","isSidechain":false,"type":"assistant",'
    b'"uuid":"' + UUID.encode() + b'2","sessionId":"s","version":"2.1.98",'
    b'"timestamp":"2026-01-02T03:04:06.678Z","message":{"id":"msg_1","role":"assistant",'
    b'"model":"m","content":[{"type":"tool_use","id":"t1","name":"Read","input":{"x":%s}}]}}\n'
)
GEMINI = (
    b'{"sessionId":"s","projectHash":"p","startTime":"2026-01-02T03:04:05.678Z",'
    b'"lastUpdated":"2026-01-02T03:04:05.678Z","kind":"main"}\n'
    b'{"id":"m1","timestamp":"2026-01-02T03:04:05.678Z","type":"user","content":"hi"}\n'
    b'{"id":"m2","timestamp":"2026-01-02T03:04:06.678Z","type":"gemini","content":"",'
    b'"toolCalls":[{"id":"t1","name":"read_file","args":{"x":%s},"status":"success",'
    b'"timestamp":"2026-01-02T03:04:06.678Z","result":[]}]}\n'
)
RECORDED = (
    b'{"type":"block_complete","blockId":"a","conversationId":"main","block":{"type":'
    b'"user_message","id":"a","conversationId":"main","sessionId":"s","timestamp":null,'
    b'"content":"hi","source":null}}\n'
    b'{"type":"block_complete","blockId":"b","conversationId":"main","block":{"type":"tool_use",'
    b'"id":"b","conversationId":"main","sessionId":"s","timestamp":null,"toolName":"Read",'
    b'"toolUseId":"t1","input":{"x":%s},"status":"success","source":null}}\n'
)
TRANSCRIPTS = {"claude": CLAUDE, "gemini": GEMINI, "script": RECORDED}


@pytest.mark.parametrize(("text", "reason"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("adapter", TRANSCRIPTS)
def test_a_transcripts_odd_value_is_cleaned_in_the_block_that_says_why(
    adapter: str, text: bytes, reason: str
) -> None:
    """Every printed line is plain JSON that keeps the format's rules; sound blocks say nothing."""
    source = Source("s.jsonl", data=TRANSCRIPTS[adapter].replace(b"%s", text))
    report = ParseReport()
    found = find_sessions([source], adapter, pytest.fail)
    lines = b"".join(parse_all(found, report, hidden=False)).splitlines()
    blocks = [orjson.loads(line) for line in lines]
    assert [json.loads(line) for line in lines] == blocks
    for block in blocks:
        assert jsontext.encode(block)
        assert check("block", block) == []
    (call,) = (block for block in blocks if block["type"] == "tool_use")
    assert call["lossy"] == [reason]
    # What is wrong with a row is said of all its blocks.
    others = [block for block in blocks if block["source"]["line"] != call["source"]["line"]]
    assert others
    assert all("lossy" not in block for block in others)


SAID = {
    "a lone surrogate": ("'a\\ud800b'", "a\ufffdb", "lone-surrogate"),
    "a surrogate in a key": ("{'\\ud800': 1}", {"\ufffd": 1}, "lone-surrogate"),
    "a 64-bit integer": ("-2**60", str(-(2**60)), "big-integer"),
    "an integer beyond any": ("2**70", str(2**70), "big-integer"),
    "no number": ("float('nan')", None, "non-finite"),
    "infinity": ("[float('inf')]", [None], "non-finite"),
}


@pytest.mark.parametrize(("python", "cleaned", "reason"), SAID.values(), ids=SAID)
def test_a_providers_odd_value_is_logged_clean_with_its_reason(
    stage: Any, plugin: Any, python: str, cleaned: Any, reason: str
) -> None:
    """The turn completes, the caller is shown what was logged, and every reader reads the log."""
    name = plugin("odd", body=TOOL.replace("VALUE", python))
    paths = stage.new(provider=name)
    events = stage.streamed(paths)
    shown = [e["block"] for e in events if e["type"] == "block_complete"]
    logged = [e["data"]["block"] for e in stage.log(paths) if e["event"] == "block"]
    assert shown == logged
    assert logged[-1]["input"] == {"x": cleaned}
    assert [block.get("lossy") for block in logged] == [None, [reason]]
    assert stage.events(paths)[-2:] == ["turn.complete", "message.delivered"]
    assert read_agent(paths, whole=True).findings == ()
    assert list(validate([paths.folder])) == []


@pytest.mark.parametrize("levels", [124, 125, 126, 300])
def test_a_providers_block_that_nests_too_deep_is_cut_where_the_log_must_end(
    stage: Any, plugin: Any, levels: int
) -> None:
    """A block stands two levels down in its record; the turn completes all the same."""
    python = f"__import__('functools').reduce(lambda v, _: [v], range({levels}), 1)"
    paths = stage.new(provider=plugin("deep", body=TOOL.replace("VALUE", python)))
    assert stage.send(paths).outcome == "completed"
    block = stage.log(paths)[-4]["data"]["block"]
    assert block.get("lossy") == (["too-deep"] if levels > 124 else None)
    assert list(validate([paths.folder])) == []


def test_a_reason_to_stop_that_cannot_be_written_is_cleaned(stage: Any, plugin: Any) -> None:
    """It neither fails the turn nor leaves it open."""
    body = "yield stream.metadata_update({'stopReason': '\\ud800'}, 'main')"
    paths = stage.new(provider=plugin("odd", body=body))
    assert stage.send(paths).stop_reason == "\ufffd"
    assert stage.state(paths).open_turn is None


@pytest.mark.parametrize(
    "text",
    [rb'"\ud800"', b"NaN", b"1152921504606846976", b'"a\tb"', b"[" * 300 + b"]" * 300,
     b'"\xff\\ud800"'],
)  # fmt: skip
def test_a_foreign_writers_odd_record_stops_no_agent(stage: Any, text: bytes) -> None:
    """Readers, the next turns and `restore` go on; what was added is never left half done."""
    paths = stage.new()
    stage.send(paths)
    state = stage.state(paths)
    record = {
        "seq": state.position.last_seq + 1,
        "ts": stage.now(),
        "event": "message.enqueued",
        "session_id": state.session.id,
        "data": {"message_id": stage.ids.agent(), "sender": "x", "kind": "user",
                 "content": [{"type": "text", "text": "x", "more": "MORE"}]},
        "prev": state.position.last_hash,
    }  # fmt: skip
    with paths.log.open("ab") as log:
        log.write(orjson.dumps(record).replace(b'"MORE"', text) + b"\n")
    assert stage.send(paths, "mine").response == "mine"
    assert restore_agent(stage.services, paths).error is None
    assert restore_agent(stage.services, paths).actions == ()
    assert stage.send(paths, "again").response == "again"
    assert stage.state(paths).open_turn is None
    assert read_agent(paths).state == read_agent(paths, whole=True).state


TOOL = """
fields = {"toolName": "t", "toolUseId": "1", "input": {"x": VALUE}, "status": "success"}
block = self.transcript.block("tool_use", "b", self.spec.now(), **fields)
yield stream.block_complete("y", block)
"""


def is_plain(value: Any, depth: int = 1) -> bool:
    """Tell whether a decoded value keeps SPEC.md, "Values"."""
    if isinstance(value, dict):
        inside = [*value.values(), *value]
    elif isinstance(value, list):
        inside = value
    elif isinstance(value, float):
        return value == value and abs(value) != float("inf")
    else:
        return not isinstance(value, int) or abs(value) <= 2**53 - 1
    return depth <= 128 and all(is_plain(item, depth + 1) for item in inside)


def test_every_file_of_a_session_is_read_alike_by_every_json_reader(
    stage: Any, plugin: Any
) -> None:
    """Python's json, orjson and (where it is installed) jq see the same plain values."""
    talk = stage.new(name="é𝄞")
    for text in ("\u2028\x85\x1b[31m", "naïve 𝄞 \x00\x7f", "{}"):
        stage.send(talk, text)
    suspend(stage.services, talk)
    stage.send(stage.script("tools.jsonl"))
    for number, (python, _, _) in enumerate(SAID.values()):
        stage.send(stage.new(provider=plugin(f"odd{number}", body=TOOL.replace("VALUE", python))))
    files = [path for path in stage.root.rglob("*.json*") if path.is_file()]
    assert len(files) > 50
    for path in files:
        data = path.read_bytes()
        texts = data.splitlines() if path.suffix == ".jsonl" else [data]
        values = [json.loads(text) for text in texts]
        assert [orjson.loads(text) for text in texts] == values
        assert all(map(is_plain, values)), path
        if shutil.which("jq"):
            done = subprocess.run(["jq", "-c", "."], input=data, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), path
            assert [json.loads(line) for line in done.stdout.splitlines()] == values, path
