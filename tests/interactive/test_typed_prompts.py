"""What was typed into full-screen clients, and nothing else, is what every command says was typed.

Most recordings lie beside the repository, and some of the small ones in its fixtures, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import run_here
from keys_exemptions import UNWRITTEN
from keys_judge import expected_prompts, expected_titles, faults, text_of, unwritten_commands
from keys_log import RECORDINGS, Recording, fixtures, recordings
from open_faults import OPEN
from session_readings import (
    Blocks,
    compared,
    folder_sinks,
    followed,
    grown,
    parsed_files,
    parsed_folder,
)

from agentsdir.formats.blocks import add_usage, no_usage

ALL = recordings()


def _recordings() -> pytest.MarkDecorator:
    """Run a test with each recording; one that a fault is in the way of may fail."""
    cases = [
        pytest.param(
            one,
            id=f"{one.name}{suffix}",
            marks=[pytest.mark.xfail(reason=why, strict=False)]
            if (why := OPEN.get(one.name))
            else [],
        )
        for suffix, found in (("-fixture", fixtures()), ("", ALL))
        for one in found
    ]
    return pytest.mark.parametrize("recording", cases)


every_recording = _recordings()
COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "totalTokens")


def command(recording: Recording, root: Path, *arguments: str) -> list[Any]:
    """Run a command in this process, as the user whose home was recorded; it must say no more."""
    variables = {"AGENTSDIR_ROOT": str(root), "HOME": str(recording.home)}
    done = run_here(*arguments, variables=variables, cwd=root.parent)
    assert (done.code, done.err) == (0, ""), (arguments, done.err)
    return done.rows


@every_recording
@pytest.mark.parametrize("read", [parsed_folder, parsed_files, followed])
def test_what_was_typed_is_what_a_reader_says(
    recording: Recording, read: Callable[[Recording], Blocks]
) -> None:
    """Prompts once, as the person left them, in their order; commands are none."""
    assert faults(recording, read(recording)) == []


@every_recording
def test_a_session_is_followed_row_by_row(recording: Recording, tmp_path: Path) -> None:
    """At every stop all prompts so far are there; at the end it is what parsing gives."""
    missing: list[str] = []

    def look(at: float, found: Blocks) -> None:
        said = [text_of(b) for bs in found.values() for b in bs if b["type"] == "user_message"]
        due = [one for one in expected_prompts(recording) if one.at < at and not one.queued]
        missing.extend(one.text for one in due if not any(map(one.is_in, said)))

    home = tmp_path / "home"
    left = grown(recording, home, look)
    assert faults(recording, left) == []
    assert missing == []
    expected = {
        str(home / main.relative_to(recording.home)): compared(list(sink.blocks("all")))
        for main, sink in folder_sinks(recording).items()
    }
    assert {main: compared(blocks) for main, blocks in left.items()} == expected


@every_recording
def test_following_after_the_fact_equals_parsing(recording: Recording) -> None:
    """All blocks of all threads, in the same order."""
    parsed = {main: compared(blocks) for main, blocks in parsed_folder(recording).items()}
    assert {main: compared(blocks) for main, blocks in followed(recording).items()} == parsed


@every_recording
def test_lines_and_tokens_add_up(recording: Recording) -> None:
    """Each line has one count; the tokens on the blocks are those of the report."""
    for sink in folder_sinks(recording, hidden=True).values():
        tally = sink.tally
        assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
        assert tally.damaged == tally.recovered == 0
        assert not sink.damaged
        said = no_usage()
        for block in sink.blocks("all"):
            if "usage" in block:
                said = add_usage(said, block["usage"])
        if not any(finding.id == "unrecorded-usage" for finding in sink.findings):
            total = sink.usage()
            assert [said[name] for name in COUNTS] == [total[name] for name in COUNTS]


@every_recording
def test_a_store_lists_each_session_once_with_its_title(
    recording: Recording, tmp_path: Path
) -> None:
    """The client's own title, or else the first prompt."""
    rows = command(recording, tmp_path / "root", "list", "--native")
    sessions = parsed_folder(recording)
    talked = [main for main, blocks in sessions.items() if blocks]
    assert sorted(row["file"] for row in rows) == sorted(talked)
    assert sorted(row["title"] for row in rows) == [
        title if len(title) <= 200 else f"{title[:199]}…"
        for title in expected_titles(recording, sessions)
    ]


@every_recording
def test_an_adopted_session_replays_what_was_typed(recording: Recording, tmp_path: Path) -> None:
    """`new --from` of each session by its file, then `replay`: the blocks that parsing gives."""
    work = tmp_path / "work"
    work.mkdir()
    replayed: Blocks = {}
    parsed = parsed_folder(recording)
    for main, blocks in parsed.items():
        if not blocks:
            continue
        asked = ("new", "--from", main, "--cwd", str(work), "--json")
        (made,) = command(recording, tmp_path / "root", *asked)
        events = command(recording, tmp_path / "root", "replay", "--events", made["agentId"])
        latest = {
            (event["block"]["conversationId"], event["blockId"]): event["block"]
            for event in events
            if event["type"] == "block_complete"
        }
        replayed[main] = list(latest.values())
        assert compared(replayed[main]) == compared(blocks)
    assert faults(recording, replayed) == []


def test_what_no_client_wrote_is_counted() -> None:
    """Every prompt was written; of some commands there is no trace."""
    for one in (*fixtures(), *ALL):
        assert len(unwritten_commands(one)) == UNWRITTEN.get(one.name, 0), one.name
    assert len(fixtures()) == 18
    assert sum(len(expected_prompts(one)) for one in fixtures()) == 69
    if ALL:
        assert len(ALL) == 83
        assert sum(len(expected_prompts(one)) for one in ALL) == 298


@pytest.mark.parametrize("store", ["claude-2.1.98", "claude-2.1.332", "gemini-0.61.0"])
def test_the_commands_say_nothing_on_stderr(store: str, tmp_path: Path) -> None:
    """In processes of their own, over every recording of a client at once."""
    folder = RECORDINGS / store
    if not folder.is_dir():
        pytest.skip("the recorded full-screen sessions are not here")
    report = tmp_path / "report.json"
    for words in (["parse", "--report", str(report), str(folder)], ["list", "--native"]):
        done = subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", *words],
            env={**os.environ, "HOME": str(next(folder.glob("tty_plain")) / "tree" / "home")},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout
    said = orjson.loads(report.read_bytes())
    assert sum(said[name] for name in ("parsed", "hidden", "folded", "damaged")) == said["lines"]
