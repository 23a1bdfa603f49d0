"""parse: transcripts in, blocks out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest


@pytest.fixture
def talk(shell: Any) -> Path:
    """Return a transcript of two turns in the working directory."""
    agent = shell.new()
    shell.ok("send", agent, "one")
    shell.ok("send", agent, "two")
    path: Path = shell.cwd / "talk.jsonl"
    path.write_bytes(shell.transcript(agent).read_bytes())
    return path


@pytest.mark.feature("C-07", "C-12")
def test_blocks_come_out_one_json_object_a_line(shell: Any, talk: Path) -> None:
    """Each with its type, and where it stands in its file."""
    rows = shell.ok("parse", "talk.jsonl").rows
    assert [row["type"] for row in rows] == ["user_message", "assistant_text"] * 2
    data = talk.read_bytes()
    for row in rows:
        source = row["source"]
        assert source["file"] == "talk.jsonl"
        raw = data[source["offset"] : source["offset"] + source["length"]]
        assert orjson.loads(raw)["block"]["id"] == row["id"]


@pytest.mark.feature("C-07")
def test_standard_input_gives_the_same_blocks_as_the_file(shell: Any, talk: Path) -> None:
    """But for the name of the source."""
    piped = shell.ok("parse", "-", stdin=talk.read_bytes()).out
    assert piped.replace('"file":"-"', '"file":"talk.jsonl"') == shell.ok("parse", "talk.jsonl").out


def test_a_folder_gives_what_its_files_give(shell: Any, talk: Path) -> None:
    """Other files in it are passed over without a word."""
    (shell.cwd / "notes.json").write_text('{"a":1}')
    (shell.cwd / "empty.jsonl").write_text("")
    (shell.cwd / "readme.txt").write_text("x")
    assert len(shell.ok("parse", ".").rows) == 4
    done = shell("parse", "--report", "-", ".")
    findings = orjson.loads(done.err)["findings"]
    assert sorted(f["id"] for f in findings) == ["empty-file", "skipped-file"]
    assert done.code == 0
    del talk


REJECTED = {
    "no file": ("nowhere.jsonl", None, 2, "usage"),
    "an empty file": ("x.jsonl", b"", 12, "empty-file"),
    "no transcript": ("x.jsonl", b'{"a":1}\n', 12, "not-a-transcript"),
    "no text": ("x.jsonl", b"\xff\xfe\0\0", 12, "not-a-transcript"),
    "an empty folder": ("folder", "folder", 12, "not-a-transcript"),
}


@pytest.mark.parametrize(("name", "data", "code", "kind"), REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_parsed_is_one_line_and_its_own_exit_code(
    shell: Any, name: str, data: Any, code: int, kind: str
) -> None:
    """Or one JSON object."""
    path = shell.cwd / name
    if data == "folder":
        path.mkdir()
    elif data is not None:
        path.write_bytes(data)
    done = shell("parse", name)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert name in done.err
    error = shell("parse", name, "--json").error
    assert (error["type"], error["kind"], error["exitCode"]) == ("error", kind, code)


def test_one_bad_file_among_several_does_not_stop_the_others(shell: Any, talk: Path) -> None:
    """It is named, and the command exits 3."""
    (shell.cwd / "bad.jsonl").write_text("hello\n")
    done = shell("parse", "bad.jsonl", str(talk), "talk.jsonl")
    assert done.code == 3
    assert len(done.rows) == 8
    assert done.err.count("\n") == 1
    assert "bad.jsonl" in done.err


@pytest.mark.parametrize("bad", ["/proc/self/mem", "x" * 300], ids=["a bad disk", "a long name"])
def test_a_file_that_the_system_refuses_is_named_and_stops_no_other(
    shell: Any, talk: Path, bad: str
) -> None:
    """Not standard output, whose fault it is not."""
    done = shell("parse", talk.name, bad)
    assert (done.code, done.out) == (3, shell.ok("parse", talk.name).out)
    assert bad in done.err
    assert "cannot read" in done.err
    assert "standard output" not in done.err


def test_an_empty_name_is_refused(shell: Any, talk: Path) -> None:
    """A variable that was not set would else mean the working directory."""
    done = shell("parse", talk.name, "")
    assert (done.code, done.out) == (2, "")
    assert "empty" in done.err


def test_damage_is_named_on_stderr_and_exits_3(shell: Any, talk: Path) -> None:
    """As compilers do: file, line, id, message."""
    data = talk.read_bytes()
    talk.write_bytes(data + b"\0\0\n" + data[:50])
    done = shell("parse", "talk.jsonl")
    assert (done.code, len(done.rows)) == (3, 4)
    named = [line.split(": ")[1:3] for line in done.err.splitlines()]
    number = data.count(b"\n")
    assert named == [
        [f"talk.jsonl:{number + 1}", "nul-run"],
        [f"talk.jsonl:{number + 2}", "torn-tail"],
    ]


def test_a_report_goes_where_it_was_asked_for(shell: Any, talk: Path) -> None:
    """A file, or stderr; and accounts for every line."""
    shell.ok("parse", "--report", "report.json", "talk.jsonl")
    report = orjson.loads((shell.cwd / "report.json").read_bytes())
    assert report["adapter"] in ("echo", "script")
    assert report["lines"] == talk.read_bytes().count(b"\n")
    counts = ("parsed", "hidden", "folded", "damaged")
    assert sum(report[name] for name in counts) == report["lines"]
    assert report["blocks"] == {"user_message": 2, "assistant_text": 2}
    assert orjson.loads(shell("parse", "--report", "-", "talk.jsonl").err) == report
    done = shell("parse", "--report", "no/such/folder.json", "talk.jsonl")
    assert (done.code, done.err.count("\n")) == (1, 1)


def test_views_and_hidden_rows_are_printed_on_demand(shell: Any, talk: Path) -> None:
    """What was replaced, and what is bookkeeping."""
    first = talk.read_bytes().splitlines(keepends=True)
    again = orjson.loads(first[0])
    again["block"]["content"] = "changed"
    talk.write_bytes(b"".join(first) + orjson.dumps(again) + b'\n{"type":"novelty"}\n')
    assert len(shell.ok("parse", "talk.jsonl").rows) == 4
    every = shell.ok("parse", "--view", "all", "talk.jsonl").rows
    assert [row.get("superseded", False) for row in every] == [True, False, False, False, False]
    hidden = shell.ok("parse", "--hidden", "talk.jsonl").rows
    assert [row["type"] for row in hidden if row.get("hidden")] == ["system"]


def test_unknown_views_and_adapters_are_usage_errors(shell: Any, talk: Path) -> None:
    """With what there is."""
    done = shell("parse", "--view", "some", "talk.jsonl")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "live" in done.err
    done = shell("parse", "--adapter", "nobody", "talk.jsonl")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "gemini" in done.err
    del talk


def test_an_adapter_can_be_forced(shell: Any) -> None:
    """Then content is not asked, but an adapter that finds nothing in it is refused."""
    (shell.cwd / "odd.jsonl").write_text('{"a":1}\n')
    refused = shell("parse", "--adapter", "script", "odd.jsonl")
    assert (refused.code, refused.out) == (12, "")
    assert "'script'" in refused.err
    assert len(shell.ok("parse", "--adapter", "script", "--hidden", "odd.jsonl").rows) == 1


def test_blocks_on_a_terminal_hold_no_control_characters(shell: Any) -> None:
    """Escaped as JSON allows, and the same when decoded."""
    agent = shell.new()
    text = "a\x1b[2J\x7f\x9b\u202e\U000e0041z"
    shell.ok("send", agent, text)
    path = str(shell.transcript(agent))
    shown = shell.ok("parse", path, tty=True)
    assert shown.out.isascii()
    assert not set(shown.out) & {"\x1b", "\x7f"}
    assert shown.rows == shell.ok("parse", path).rows
    assert shown.rows[0]["content"] == text


def test_parse_needs_an_operand(shell: Any) -> None:
    """Nothing is not standard input."""
    done = shell("parse")
    assert (done.code, done.err.count("\n")) == (2, 1)


RECORDED = Path(__file__).parents[2] / "fixtures" / "claude" / "recorded" / "2.1.98"


@pytest.mark.feature("C-07")
def test_forks_beside_their_source_are_all_shown_and_their_copies_paid_for_once(shell: Any) -> None:
    """Each session has its own tokens; the sum of the folder leaves copied messages out."""
    shutil.copytree(RECORDED / "fork", shell.cwd / "fork")
    files = sorted(path.name for path in (shell.cwd / "fork").iterdir())
    assert len(files) == 3
    alone = {name: _report(shell, f"fork/{name}") for name in files}
    together = _report(shell, "fork")
    for name, report in alone.items():
        thread = together["conversations"][f"fork/{name}/main"]
        assert thread["usage"] == report["usage"]
        assert thread["blocks"] == report["conversations"]["main"]["blocks"]
    assert together["usage"] == {**together["usage"], "outputTokens": 94, "exact": True}
    assert sum(report["usage"]["outputTokens"] for report in alone.values()) > 94


@pytest.mark.feature("C-07")
def test_a_sum_that_cannot_be_known_says_so(shell: Any) -> None:
    """No file says what was spent on a turn that a kill cut off."""
    shutil.copytree(RECORDED / "kill_text", shell.cwd / "killed")
    assert _report(shell, "killed")["usage"]["exact"] is False


def _report(shell: Any, operand: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(shell("parse", "--report", "-", operand).err)
    return found
