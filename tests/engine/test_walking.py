"""A folder is read to its end, whatever stands in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentsdir.engine.parse import FoundSession, find_sessions, parse_all, walk
from agentsdir.engine.parse_report import ParseReport
from agentsdir.formats import times
from agentsdir.formats.errors import AgentsdirError, NotATranscript

PROMPT = (
    b'{"parentUuid":null,"isSidechain":false,"type":"user","uuid":"u1","sessionId":"s",'
    b'"message":{"role":"user","content":"hi"},"timestamp":"2026-01-02T03:04:05.678Z"}\n'
)


def test_what_is_no_file_in_a_files_place_is_named_and_passed_over(tmp_path: Path) -> None:
    """A FIFO would be waited for; a link that leads nowhere cannot be read."""
    (tmp_path / "b.jsonl").write_bytes(PROMPT)
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "c.jsonl").symlink_to("nowhere")
    (tmp_path / "d.jsonl").mkdir()
    (tmp_path / "d.jsonl" / "e.jsonl").write_bytes(PROMPT)
    rejected: list[NotATranscript] = []
    sources = walk(tmp_path, "t", rejected.append)
    assert [source.name for source in sources] == ["t/b.jsonl", "t/d.jsonl/e.jsonl"]
    assert [(Path(error.file).name, error.kind) for error in rejected] == [
        ("a.jsonl", "not-a-transcript"),
        ("c.jsonl", "unreadable"),
    ]


def test_a_session_that_is_gone_when_it_is_read_does_not_stop_the_others(tmp_path: Path) -> None:
    """It was there when the folder was looked at; the client has taken it away."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(PROMPT.replace(b'"u1"', f'"{name}"'.encode()))
    found: list[FoundSession] = find_sessions(walk(tmp_path, "t", pytest.fail), "auto", pytest.fail)
    (tmp_path / "b.jsonl").unlink()
    report = ParseReport()
    lines = b"".join(parse_all(found, report, hidden=False)).splitlines()
    assert len(lines) == 2
    assert [(one.id, one.file) for one in report.findings] == [("unreadable", "t/b.jsonl")]
    with pytest.raises(AgentsdirError, match=r"cannot read t/b.jsonl"):
        list(parse_all(found[1:2], report, hidden=False))


def test_one_subagents_file_that_cannot_be_read_does_not_take_its_session_along(
    tmp_path: Path,
) -> None:
    """It is named, and what else there is of the session is read."""
    main = tmp_path / "00000001-0000-4000-8000-000000000001.jsonl"
    main.write_bytes(PROMPT)
    side = main.with_suffix("") / "subagents"
    side.mkdir(parents=True)
    child = PROMPT.replace(b'"isSidechain":false', b'"isSidechain":true,"agentId":"a1"')
    child = child.replace(b'"u1"', b'"u2"')
    for name in ("agent-a1.jsonl", "agent-a2.jsonl"):
        (side / name).write_bytes(child.replace(b'"a1"', name[6:8].encode().join((b'"', b'"'))))
    found = find_sessions(walk(tmp_path, "t", pytest.fail), "auto", pytest.fail)
    (side / "agent-a2.jsonl").unlink()
    report = ParseReport()
    list(parse_all(found, report, hidden=False))
    assert [one.id for one in report.findings] == ["unreadable", "orphan-subagent"]
    assert set(report.as_json()["conversations"]) == {"main", "a1"}


@pytest.mark.parametrize("seconds", [1e18, -1e18, float("inf")])
def test_a_files_time_beyond_the_calendar_is_its_end(seconds: float) -> None:
    """Some file systems hold it, and one such file must not end a list."""
    assert times.of_file(seconds)[:4] in ("9999", "0001")
