"""Outputs in files of their own are read beside the chats of their session, and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from gemini_reading import FIXTURES, Reading

from agentsdir.formats.source import Source

FULL = "the whole of it\n" * 4000
CUT = "Output too large. Showing first 8,000 and last 32,000 characters. For full output see: {}\na"
OLD_CUT = (
    "Tool output was too large and has been truncated.\n"
    "The full output has been saved to: {}\nTo read the complete output"
)
NORMAL = "[Message Normalized: Tool output exceeded size limit]a\n\nFull output saved to: {}"
MASKED = (
    "<tool_output_masked>\nOutput: a\n\nOutput too large. Full output available at: {}\n"
    "</tool_output_masked>"
)
MASKED_TEXT = (
    "<tool_output_masked>\n[Tool observation string (0.10MB, 1 lines) masked to preserve context "
    "window. Full string saved to: {}]\n</tool_output_masked>"
)
OWN = "tool-outputs/session-s-1/ls__1.txt"


def _chat(project: Path, output: str, inner: str = "chats/session-1-s-1.jsonl") -> Path:
    """Write a session whose one call gave `output`."""
    answer = {"functionResponse": {"id": "ls__1", "name": "ls", "response": {"output": output}}}
    call = {"id": "ls__1", "name": "ls", "args": {}, "status": "success", "result": [answer]}
    rows = [
        {"sessionId": "s-1", "projectHash": "h", "kind": "main"},
        {"id": "u", "type": "user", "content": [{"text": "list"}]},
        {"id": "g", "type": "gemini", "content": "", "toolCalls": [call]},
    ]
    path = project / inner
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _put(path: Path, text: str = FULL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _result(chat: Path) -> tuple[dict[str, Any], list[str]]:
    reading = Reading([Source("chat", path=chat)])
    (block,) = [block for block in reading.blocks() if block["type"] == "tool_result"]
    said = [f.message for sink in reading.sinks for f in sink.findings if f.id == "unread-output"]
    return block, said


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (CUT, OWN),
        (CUT, "tool-outputs/session-s-1________3/ls__1.txt"),  # as an interactive prompt's
        (CUT, "tool-outputs/ls_7.txt"),
        (OLD_CUT, "ls-1757000000000-3fa.output"),
        (NORMAL, OWN),
    ],
)
def test_a_cut_output_stays_as_the_model_saw_it_and_names_its_file(
    tmp_path: Path, text: str, inner: str
) -> None:
    """With length and hash; wherever the client's folders were when it wrote the name."""
    _put(tmp_path / inner)
    said = text.format(f"/elsewhere/home/.gemini/tmp/p/{inner}")
    block, remarks = _result(_chat(tmp_path, said))
    assert (block["output"], remarks) == (said, [])
    digest = sha256(FULL.encode()).hexdigest()
    assert block["overflow"] == {"file": inner, "length": len(FULL), "sha256": digest}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (MASKED, json.dumps({"output": FULL}, indent=2)),
        (MASKED_TEXT, FULL),
        (MASKED, FULL),
    ],
)
def test_a_masked_output_is_put_back(tmp_path: Path, text: str, kept: str) -> None:
    """The model saw it once; the file has the whole response, or the text alone."""
    _put(tmp_path / OWN, kept)
    block, remarks = _result(_chat(tmp_path, text.format(f"/x/{OWN}")))
    assert (block["output"], remarks) == (FULL, [])


def test_a_subagents_outputs_stand_in_its_own_or_its_sessions_folder(tmp_path: Path) -> None:
    """Its file stands one folder deeper."""
    for folder in ("session-s-1", "session-main-id"):
        inner = f"tool-outputs/{folder}/x.txt"
        _put(tmp_path / inner)
        chat = _chat(tmp_path, CUT.format(f"/h/{inner}"), "chats/main-id/s-1.jsonl")
        assert _result(chat)[0]["overflow"]["file"] == inner


def _link(project: Path) -> str:
    secret = _put(project.parent / "secret.txt")
    place = project / OWN
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    return OWN


def _linked_folder(project: Path) -> str:
    elsewhere = _put(project.parent / "elsewhere" / "ls__1.txt")
    (project / "tool-outputs").mkdir(parents=True)
    (project / "tool-outputs" / "session-s-1").symlink_to(elsewhere.parent)
    return OWN


def _pipe(project: Path) -> str:
    (project / OWN).parent.mkdir(parents=True)
    os.mkfifo(project / OWN)
    return OWN


def _other_session(project: Path) -> str:
    _put(project / "tool-outputs" / "session-s-2" / "x.txt")
    return "tool-outputs/session-s-2/x.txt"


def _outside(project: Path) -> str:
    return str(_put(project.parent / "secret.txt"))


def _above(project: Path) -> str:
    _put(project / "x.txt")
    return "tool-outputs/session-s-1/../../x.txt"


def _backslashes(project: Path) -> str:
    _put(project / "x.txt")
    return "tool-outputs\\..\\x.txt"


def _hidden(project: Path) -> str:
    _put(project / "tool-outputs" / ".env")
    return "tool-outputs/.env"


def _missing(_project: Path) -> str:
    return OWN


@pytest.mark.parametrize(
    "make",
    [
        _link,
        _linked_folder,
        _pipe,
        _other_session,
        _outside,
        _above,
        _backslashes,
        _hidden,
        _missing,
    ],
)
@pytest.mark.parametrize("text", [CUT, MASKED])
def test_no_other_file_is_read_and_that_is_said(
    tmp_path: Path, make: Callable[[Path], str], text: str
) -> None:
    """A link, a pipe, another session's file, a place elsewhere or above, a file that is gone."""
    project = tmp_path / "project"
    said = text.format(make(project))
    block, remarks = _result(_chat(project, said))
    assert block["output"] == said
    assert "overflow" not in block
    assert len(remarks) == 1


def test_a_transcript_that_stands_in_no_project_has_nothing_beside_it(tmp_path: Path) -> None:
    """Copied away, or from standard input, it keeps what the text says."""
    _put(tmp_path / OWN)
    chat = _chat(tmp_path, CUT.format(f"/x/{OWN}"), "copy.jsonl")
    assert "overflow" not in _result(chat)[0]
    (sink,) = Reading([Source("-", data=chat.read_bytes())]).sinks
    assert [finding.id for finding in sink.findings] == ["unread-output"]


def test_an_output_that_merely_quotes_a_pointer_points_nowhere(tmp_path: Path) -> None:
    """Only how an output begins tells that the client cut it."""
    _put(tmp_path / OWN)
    block, remarks = _result(_chat(tmp_path, "cat: " + CUT.format(f"/x/{OWN}")))
    assert "overflow" not in block
    assert remarks == []


def test_the_files_of_a_recorded_session_are_found() -> None:
    """As the real client names them in its texts and on disk."""
    folder = FIXTURES / "era-0.61-spilled"
    (chat,) = (folder / "chats").glob("*.jsonl")
    reading = Reading([Source(str(chat), path=chat)])
    found = [block["overflow"] for block in reading.blocks() if block["type"] == "tool_result"]
    files = sorted(path for path in folder.rglob("*.txt"))
    assert sorted(one["file"] for one in found) == [str(path.relative_to(folder)) for path in files]
    assert {one["sha256"] for one in found} == {
        sha256(path.read_bytes()).hexdigest() for path in files
    }
    assert reading.findings == []
