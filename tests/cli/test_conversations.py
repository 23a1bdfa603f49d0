"""new, send, suspend, resume, restore, replay, inspect, list: what a person and a script see."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from agentsdir.engine.dispatcher import recorded_result
from agentsdir.formats import times
from agentsdir.formats.blocks import EVENT_TYPES
from agentsdir.formats.store.layout import AgentPaths

SESSION_FIELDS = {
    "sessionId",
    "type",
    "agentProfileReference",
    "status",
    "lastActivity",
    "createdAt",
}


@pytest.mark.feature("C-01", "C-11")
def test_new_prints_the_agents_id_alone_on_its_line(shell: Any) -> None:
    """Or an object under --json; nothing has run."""
    done = shell.ok("new")
    assert re.fullmatch("[a-z0-9]{24,32}\n", done.out)
    made = shell.ok("new", "--json").json
    assert made == {"type": "agent", "agentId": made["agentId"], "durability": "always"}
    assert {row["state"] for row in shell.ok("list").rows} == {"created"}


@pytest.mark.feature("C-02", "C-11")
def test_send_prints_the_answer_and_nothing_else(shell: Any) -> None:
    """From an argument, from standard input, with or without a dash."""
    agent = shell.new()
    assert shell.ok("send", agent, "fix the tests").out == "fix the tests\n"
    assert shell.ok("send", agent, stdin=b"from a pipe\n").out == "from a pipe\n"
    assert shell.ok("send", agent, "-", stdin="häß\n\n".encode()).out == "häß\n\n"


@pytest.mark.feature("C-02")
def test_send_under_json_prints_one_result(shell: Any) -> None:
    """With the answer, the outcome and the usage."""
    agent = shell.new()
    result = shell.ok("send", agent, "one two", "--json").json
    assert list(result) == [
        "type",
        "messageId",
        "turnId",
        "outcome",
        "response",
        "stopReason",
        "usage",
        "costUsd",
        "denials",
        "agentId",
        "name",
        "sessionId",
        "nativeId",
        "durationMs",
        "toolsUsed",
        "durability",
    ]
    assert (result["type"], result["outcome"], result["response"]) == (
        "turn",
        "completed",
        "one two",
    )
    assert result["usage"]["totalTokens"] == 4


def test_send_under_json_says_whose_turn_it_was_how_long_it_took_and_what_it_used(
    shell: Any,
) -> None:
    """By the log: so it is the same where another process ran the turn."""
    agent = shell.script("tools.jsonl", "--name", "fox")
    result = shell.ok("send", agent, "go", "--json").json
    (row,) = shell.ok("list").rows
    assert (result["agentId"], result["name"]) == (agent, "fox")
    assert result["sessionId"] == row["sessionId"]
    ran = [record for record in shell.log(agent) if record["event"].startswith("turn.")]
    took = times.from_text(ran[1]["ts"]) - times.from_text(ran[0]["ts"])
    assert result["durationMs"] == round(took.total_seconds() * 1000)
    state = orjson.loads((shell.folder(agent) / "state.json").read_bytes())
    assert result["nativeId"] == state["native"]["id"]
    assert result["toolsUsed"] == {"Read": 1}
    recorded = recorded_result(AgentPaths(shell.folder(agent), agent), result["messageId"], print)
    same = ("agentId", "name", "sessionId", "nativeId", "durationMs", "toolsUsed")
    assert {k: recorded.as_json()[k] for k in same} == {k: result[k] for k in same}


@pytest.mark.feature("B-05", "C-12")
def test_send_under_events_prints_every_stream_event_as_a_line(shell: Any) -> None:
    """The deltas put together are the answer."""
    rows = shell.ok("send", shell.new(), "a b c", "--events").rows
    assert "".join(row["delta"] for row in rows if row["type"] == "text_delta") == "a b c"
    assert all(row["conversationId"] == "main" for row in rows)


@pytest.mark.feature("B-05")
def test_all_five_events_name_the_conversation_that_they_are_of(shell: Any) -> None:
    """A subagent's that of its thread; a block completes as what its deltas say, or more."""
    seen = set()
    threads = set()
    for script in ("tools.jsonl", "thinking.jsonl", "subagent.jsonl"):
        rows = shell.ok("send", shell.script(script), "go", "--events").rows
        seen |= {row["type"] for row in rows}
        threads |= {row["conversationId"] for row in rows}
        began = {row["blockId"]: row["block"] for row in rows if row["type"] == "block_start"}
        for row in rows:
            if "block" in row:
                assert row["block"]["conversationId"] == row["conversationId"]
            if row["type"] == "text_delta":
                began[row["blockId"]]["content"] += row["delta"]
            elif row["type"] == "block_update":
                began[row["blockId"]].update(row["updates"])
            elif row["type"] == "block_complete" and row["blockId"] in began:
                begun = began.pop(row["blockId"])
                assert row["block"].get("content", "").startswith(begun.get("content", ""))
        assert began == {}
    assert seen == set(EVENT_TYPES)
    assert len(threads) > 1


def test_answers_of_several_blocks_are_separated_by_an_empty_line(
    shell: Any, tmp_path: Any
) -> None:
    """What is streamed is what is recorded, and what a subagent says is not printed."""
    script = tmp_path / "s.jsonl"
    lines = [
        {
            "type": "block_complete",
            "blockId": name,
            "block": {"type": "assistant_text", "id": name, "content": name},
            "conversationId": "child" if name == "hidden" else "main",
        }
        for name in ("one", "hidden", "two")
    ]
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    agent = shell.script(str(script))
    assert shell.ok("send", agent, "x").out == "one\n\ntwo\n"
    assert shell.ok("send", agent, "x", "--json").json["response"] == "one\n\ntwo"


MESSAGES = {
    "a string": (b'"hello"', "hello"),
    "parts": (b'[{"type":"text","text":"a"},{"type":"text","text":"b"}]', "a\nb"),
    "an object": (b'{"content":"hello"}', "hello"),
    "an object with a role": (b'{"role":"user","content":[{"type":"text","text":"x"}]}', "x"),
    "an image": (
        (
            b'[{"type":"text","text":"see"},{"type":"image",'
            b'"source":{"type":"base64","data":"AA==","mediaType":"image/png"}}]'
        ),
        "see\n[image]",
    ),
    "an image by its address": (
        b'[{"type":"image","source":{"type":"url","data":"https://x/y.png"}}]',
        "[image]",
    ),
}


@pytest.mark.feature("C-02")
@pytest.mark.parametrize(("data", "answer"), MESSAGES.values(), ids=MESSAGES)
def test_a_prompt_can_be_a_file_of_text_and_image_parts(
    shell: Any, data: bytes, answer: str
) -> None:
    """Or standard input."""
    agent = shell.new()
    (shell.cwd / "m.json").write_bytes(data)
    assert shell.ok("send", agent, "--messages", "m.json").out == answer + "\n"
    assert shell.ok("send", agent, "--messages", "-", stdin=data).out == answer + "\n"


BAD_MESSAGES = {
    "no JSON": b"hello",
    "no UTF-8": b'"\xff"',
    "nothing": b"",
    "a number": b"5",
    "null": b"null",
    "an empty list": b"[]",
    "an object with other keys": b'{"content":"x","extra":1}',
    "an object without content": b'{"role":"user"}',
    "a part that is a string": b'["x"]',
    "a part without a type": b'[{"text":"x"}]',
    "a part of another type": b'[{"type":"audio"}]',
    "a text without text": b'[{"type":"text"}]',
    "a text that is a number": b'[{"type":"text","text":5}]',
    "a text with more": b'[{"type":"text","text":"x","more":1}]',
    "an image without source": b'[{"type":"image"}]',
    "an image of another source": b'[{"type":"image","source":{"type":"file","data":"x"}}]',
    "an image without data": b'[{"type":"image","source":{"type":"url"}}]',
    "a second part that is wrong": b'[{"type":"text","text":"x"},{"type":"x"}]',
}


@pytest.mark.parametrize("data", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_a_malformed_prompt_file_is_a_usage_error_and_records_nothing(
    shell: Any, data: bytes
) -> None:
    """One line that names the file."""
    agent = shell.new()
    (shell.cwd / "m.json").write_bytes(data)
    log = (shell.folder(agent) / "events.jsonl").read_bytes()
    done = shell("send", agent, "--messages", "m.json")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "m.json" in done.err
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == log


@pytest.mark.parametrize(
    ("arguments", "stdin", "stdin_tty"),
    [
        (["", "--json"], b"", False),
        ([" \n"], b"", False),
        ([], b"", False),
        ([], b"\n", False),
        ([], b"\xff\xfe", False),
        (["-"], b"x", True),
        ([], b"x", True),
        (["\udcff"], b"", False),
        (["x", "--messages", "m.json"], b"", False),
        (["--messages", "nowhere.json"], b"", False),
        (["--messages", "."], b"", False),
    ],
)
def test_a_prompt_that_is_none_is_a_usage_error_and_records_nothing(
    shell: Any, arguments: list[str], stdin: bytes, stdin_tty: bool
) -> None:
    """Empty, no text, two at once, or a terminal that would be waited for."""
    agent = shell.new()
    log = (shell.folder(agent) / "events.jsonl").read_bytes()
    done = shell("send", agent, *arguments, stdin=stdin, stdin_tty=stdin_tty)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == log


@pytest.mark.feature("C-03", "C-04", "S-01")
def test_suspend_and_resume_say_nothing_and_change_the_state(shell: Any) -> None:
    """Under --json they print the agent's row."""
    agent = shell.new()
    shell.ok("send", agent, "x")
    assert shell.ok("suspend", agent).out == ""
    assert shell.ok("inspect", agent).json["state"] == "suspended"
    assert shell.ok("resume", agent).out == ""
    assert shell.ok("suspend", agent, "--json").json["state"] == "suspended"
    assert shell.ok("resume", agent, "--json").json["state"] == "active"


@pytest.mark.feature("C-05")
def test_restore_prints_one_line_for_each_agent(shell: Any) -> None:
    """What was done to it; doing it again does nothing."""
    active, created = shell.new(), shell.new()
    shell.ok("send", active, "x")
    lines = dict(line.split("  ", 1) for line in shell.ok("restore").out.splitlines())
    assert lines == {active: "suspended  suspended", created: "created  ok"}
    rows = {row["agentId"]: row for row in shell.ok("restore", "--json").rows}
    assert {row["type"] for row in rows.values()} == {"restored"}
    assert rows[active]["actions"] == rows[created]["actions"] == []
    assert shell.ok("restore", active).out == f"{active}  suspended  ok\n"


@pytest.mark.feature("C-05")
def test_restore_names_what_was_lost_and_exits_3(shell: Any) -> None:
    """File, line, reason; the other agents are restored."""
    bad, good = shell.new(), shell.new()
    log = shell.folder(bad) / "events.jsonl"
    shell.ok("send", bad, "x")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], b"#\n", *lines[2:]]))
    done = shell("restore")
    assert done.code == 3
    assert f"{log}:2: bad-json" in done.err
    assert good in done.out
    (shell.folder(good) / "events.jsonl").unlink()
    done = shell("restore", "--json")
    row = next(row for row in done.rows if row["agentId"] == good)
    assert (done.code, row["state"], row["error"]["kind"]) == (3, None, "invalid")


@pytest.mark.feature("C-06")
def test_replay_shows_a_conversation_or_its_events(shell: Any) -> None:
    """For people, or as JSON Lines."""
    agent = shell.script("tools.jsonl")
    shell.ok("send", agent, "What's in config.json?")
    page = shell.ok("replay", agent).out
    assert page == (
        "> What's in config.json?\n\n"
        "I'll read the file\n\n"
        '* Read {"file":"config.json"} [success]\n\n'
        '    result: {"debug":true}\n\n'
    )
    rows = shell.ok("replay", agent, "--events").rows
    assert [row["type"] for row in rows] == ["block_complete"] * 4 + ["metadata_update"]
    assert shell.ok("replay", agent, "--json").rows == rows


def test_replay_marks_a_subagents_thread_and_shows_thoughts_and_notices(shell: Any) -> None:
    """Every kind of block has its line."""
    agent = shell.script("subagent.jsonl")
    shell.ok("send", agent, "go")
    page = shell.ok("replay", agent).out
    assert "* subagent reviewer [success]\n" in page
    assert "[child-1] Reading the diff\n" in page
    assert "[child-1] -- Subagent started\n" in page
    other = shell.script("thinking.jsonl")
    shell.ok("send", other, "go")
    page = shell.ok("replay", other).out
    assert "(thinking) thought\n" in page
    assert "-- all well\n" in page


def test_replay_of_a_damaged_log_shows_the_rest_and_exits_3(shell: Any) -> None:
    """The damage is named on stderr."""
    agent = shell.new()
    shell.ok("send", agent, "x")
    log = shell.folder(agent) / "events.jsonl"
    with log.open("ab") as stream:
        stream.write(b"\0\0\n")
    done = shell("replay", agent)
    assert (done.code, done.out) == (3, "> x\n\nx\n\n")
    assert "nul-run" in done.err


@pytest.mark.feature("C-08", "B-02")
def test_inspect_is_a_page_on_a_terminal_and_json_in_a_pipe(shell: Any) -> None:
    """--json forces JSON anywhere."""
    agent = shell.new("--name", "demo")
    shell.ok("send", agent, "hello")
    page = shell.ok("inspect", agent, tty=True).out
    assert re.search(r"^agent +" + agent + "$", page, re.M)
    assert re.search(r"^turns +1 \(0 failed\)$", page, re.M)
    seen = shell.ok("inspect", agent).json
    assert seen == shell.ok("inspect", "demo", "--json", tty=True).json
    assert set(seen) >= SESSION_FIELDS
    assert (seen["agentId"], seen["name"], seen["title"]) == (agent, "demo", "hello")


@pytest.mark.feature("C-08")
def test_inspect_names_damage_wherever_it_stands_in_the_log(shell: Any) -> None:
    """Also where state.json knows what comes after it; the rest is shown as it is."""
    agent = shell.new()
    for text in ("one", "two"):
        shell.ok("send", agent, text)
    log = shell.folder(agent) / "events.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[5] = b"x" * len(lines[5])
    log.write_bytes(b"\n".join(lines))
    for form in ((), ("--json",)):
        done = shell("inspect", agent, *form, tty=True)
        assert (done.code, "events.jsonl:6: bad-json" in done.err) == (3, True)
    found = [(one["id"], one["line"]) for one in shell("inspect", agent).json["findings"]]
    assert found == [("bad-json", 6), ("seq-gap", 7), ("chain-break", 7)]
    assert shell("inspect", agent).json["counters"]["turns"] == 2


def test_a_stub_that_was_set_apart_is_no_news(shell: Any) -> None:
    """It stands among the findings, and is not said each time."""
    agent = shell.new()
    with (shell.folder(agent) / "events.jsonl").open("ab") as log:
        log.write(b'{"seq":')
    assert shell("restore", agent).code == 0
    done = shell.ok("inspect", agent)
    assert [one["id"] for one in done.json["findings"]] == ["stub"]


@pytest.mark.feature("B-02", "C-08")
def test_inspect_gives_saved_and_runtime_session_data(shell: Any) -> None:
    """Not both at once."""
    agent = shell.new()
    shell.ok("send", agent, "hello")
    saved = shell.ok("inspect", agent, "--saved").json
    runtime = shell.ok("inspect", agent, "--runtime").json
    assert "blocks" not in saved
    assert saved["rawTranscript"].encode() == shell.transcript(agent).read_bytes()
    assert [block["type"] for block in runtime["blocks"]] == ["user_message", "assistant_text"]
    assert shell("inspect", agent, "--saved", "--runtime").code == 2


@pytest.mark.feature("B-02", "C-12")
def test_list_is_a_table_on_a_terminal_and_json_lines_in_a_pipe(shell: Any) -> None:
    """One row for each agent, the newest first."""
    agents = [shell.new("--name", "one"), shell.new("--profile", "p")][::-1]
    rows = shell.ok("list").rows
    assert [row["agentId"] for row in rows] == agents
    assert all(set(row) >= SESSION_FIELDS for row in rows)
    table = shell.ok("list", tty=True).out.splitlines()
    assert table[0].split() == ["agent", "name", "state", "age", "provider", "folder"]
    assert [line.split()[0] for line in table[1:]] == [agent[:8] for agent in agents]
    assert shell.ok("list", "--json", tty=True).rows == rows


def test_list_of_nothing_is_nothing(shell: Any) -> None:
    """And makes nothing."""
    assert shell.ok("list").out == ""
    assert not shell.root.exists()


def test_list_shows_an_unreadable_agent_with_its_error_and_exits_3(shell: Any) -> None:
    """The others are listed."""
    good, bad = shell.new(), shell.new()
    (shell.folder(bad) / "events.jsonl").unlink()
    (shell.folder(bad) / "state.json").unlink()
    done = shell("list")
    assert done.code == 3
    rows = {row["agentId"]: row for row in done.rows}
    assert rows[bad]["error"]["kind"] == "invalid"
    assert rows[good]["state"] == "created"
    assert shell("list", tty=True).code == 3


@pytest.mark.feature("C-10")
def test_adapters_lists_the_built_in_ones(shell: Any) -> None:
    """As a table, or as JSON Lines."""
    rows = shell.ok("adapters").rows
    assert [row["name"] for row in rows if row["builtIn"]] == ["claude", "gemini", "script", "echo"]
    assert len(shell.ok("adapters", tty=True).out.splitlines()) == len(rows)


def test_the_root_is_named_found_upwards_or_at_home(shell: Any) -> None:
    """In this order: --root, the variable, .agentsdir upwards, .agentsdir at home."""
    by_variable = shell.new()
    named = shell.ok("--root", "named", "new").out.strip()
    assert (shell.cwd / "named" / "agents" / named).is_dir()
    shell.variables["AGENTSDIR_ROOT"] = ""
    at_home = shell.new()
    assert (shell.home / ".agentsdir" / "agents" / at_home).is_dir()
    shell.ok("--root", str(shell.cwd / ".agentsdir"), "new")
    deep = shell.cwd / "a" / "b"
    deep.mkdir(parents=True)
    shell.cwd = deep
    upwards = shell.new()
    assert (deep.parents[1] / ".agentsdir" / "agents" / upwards).is_dir()
    assert shell.folder(by_variable).is_dir()


def test_new_takes_an_agents_working_directory(shell: Any) -> None:
    """Its own by default; one that does not exist is refused."""
    (shell.cwd / "sub").mkdir()
    assert shell.ok("inspect", shell.new()).json["cwd"] == str(shell.cwd.resolve())
    agent = shell.new("--cwd", "sub")
    assert shell.ok("inspect", agent).json["cwd"] == str((shell.cwd / "sub").resolve())
    assert shell("new", "--cwd", "nowhere").code == 2
