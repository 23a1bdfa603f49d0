"""replay --at, --state, --check: what a person and a script see."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.cli.exits import Exit
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("C-06")


def test_at_shows_the_conversation_up_to_a_record_or_a_time(shell: Any) -> None:
    """As a page, and as events."""
    agent = shell.new()
    shell.ok("send", agent, "one")
    shell.ok("send", agent, "two")
    last = next(r for r in reversed(shell.log(agent)) if r["event"] == "block")
    for point in (str(last["seq"] - 1), last["ts"].replace("Z", "+00:00")):
        page = shell.ok("replay", agent, "--at", point).out
        assert page.startswith("> one\n\none\n\n> two\n\n")
    assert (
        shell.ok("replay", agent, "--at", str(last["seq"] - 1)).out == "> one\n\none\n\n> two\n\n"
    )
    rows = shell.ok("replay", agent, "--at", str(last["seq"] - 1), "--events").rows
    assert [row["type"] for row in rows].count("block_complete") == 3
    assert shell.ok("replay", agent, "--at", "1").out == ""


@pytest.mark.feature("A-04")
def test_state_prints_state_json_as_it_was(shell: Any) -> None:
    """To the byte as it is now; one document, on a terminal too."""
    agent = shell.new()
    shell.ok("send", agent, "one")
    stored = (shell.folder(agent) / "state.json").read_text()
    assert shell.ok("replay", agent, "--state").out == stored
    assert shell.ok("replay", agent, "--state", "--json", tty=True).json == orjson.loads(stored)
    then = shell.ok("replay", agent, "--at", "1", "--state").json
    assert (then["state"], then["lastSeq"], check("state", then)) == ("created", 1, [])


def test_state_of_a_damaged_log_comes_with_the_damage(shell: Any) -> None:
    """Exit 3, unless it stands beyond the point."""
    agent = shell.new()
    shell.ok("send", agent, "one")
    with (shell.folder(agent) / "events.jsonl").open("ab") as stream:
        stream.write(b"\0\0\n")
    done = shell("replay", agent, "--state")
    assert (done.code, done.json["counters"]["turns"]) == (Exit.PARTIAL, 1)
    assert "nul-run" in done.err
    shell.ok("replay", agent, "--state", "--at", str(done.json["lastSeq"]))


def test_check_says_one_line_for_each_file(shell: Any) -> None:
    """JSON Lines in a pipe or when asked, sentences on a terminal; exit 1 for what is not right."""
    agent = shell.new()
    shell.ok("send", agent, "one")
    rows = shell.ok("replay", agent, "--check").rows
    assert [row["status"] for row in rows] == ["same"] * 5
    assert all(check("derived", row) == [] for row in rows)
    assert shell.ok("replay", agent, "--check", "--json", tty=True).rows == rows
    page = shell.ok("replay", agent, "--check", tty=True).out
    assert page.splitlines()[2] == "state.json: same"

    state = shell.folder(agent) / "state.json"
    state.write_text(state.read_text().replace('"turns": 1', '"turns": 2'))
    done = shell("replay", agent, "--check", tty=True)
    assert done.code == Exit.FAILED
    assert "state.json: differs: holds 2, the log says 1 at /counters/turns\n" in done.out
    state.unlink()
    assert shell("replay", agent, "--check").code == Exit.FAILED
    shell.ok("restore", agent)
    assert shell.ok("replay", agent, "--check").rows == shell.ok("replay", agent, "--check").rows


def test_a_stale_file_is_no_failure_and_a_damaged_log_is_partial(shell: Any) -> None:
    """Damage in the log comes before what the files are."""
    agent = shell.new()
    state = shell.folder(agent) / "state.json"
    early = state.read_bytes()
    shell.ok("send", agent, "one")
    state.write_bytes(early)
    rows = shell.ok("replay", agent, "--check").rows
    assert {row["file"]: row["status"] for row in rows}["state.json"] == "stale"
    (shell.folder(agent) / "session.json").unlink()
    with (shell.folder(agent) / "events.jsonl").open("ab") as stream:
        stream.write(b"#\n")
    done = shell("replay", agent, "--check")
    assert done.code == Exit.PARTIAL
    assert "bad-json" in done.err
    assert {row["file"]: row["status"] for row in done.rows}["session.json"] == "missing"


def test_without_a_log_there_is_nothing_to_replay(shell: Any) -> None:
    """The agent cannot be known."""
    agent = shell.new()
    (shell.folder(agent) / "events.jsonl").unlink()
    for options in (["--check"], ["--state"], ["--events"], [], ["--at", "1"]):
        done = shell("replay", agent, *options)
        assert (done.code, done.out) == (Exit.INVALID, "")
        assert "is missing" in done.err


@pytest.mark.parametrize(
    "options",
    [
        ("--check", "--at", "1"),
        ("--check", "--events"),
        ("--check", "--state"),
        ("--events", "--state"),
        ("--at", "yesterday"),
    ],
)
def test_what_cannot_be_meant_is_refused(shell: Any, options: tuple[str, ...]) -> None:
    """Before anything is printed."""
    agent = shell.new()
    done = shell("replay", agent, *options, "--json")
    assert (done.code, done.out, done.error["kind"]) == (Exit.USAGE, "", "usage")


@pytest.mark.feature("C-02")
def test_record_keeps_the_stream_for_replay_as_events(shell: Any) -> None:
    """The page, the answer and the result are what they are without it."""
    agent = shell.script("tools.jsonl")
    assert shell.ok("send", agent, "--record", "go").out == "I'll read the file\n"
    rows = shell.ok("replay", agent, "--events").rows
    assert {"block_start", "text_delta"} <= {row["type"] for row in rows}
    assert all(check("stream-event", row) == [] for row in rows)
    assert shell.ok("replay", agent).out.startswith("> go\n\nI'll read the file\n\n* Read")
    assert shell.ok("replay", agent, "--check").code == Exit.OK
    result = shell.ok("send", shell.new(), "--record", "--json", "hi").json
    assert (result["response"], check("turn-result", result)) == ("hi", [])
