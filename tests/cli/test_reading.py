"""`log` and `last`: a conversation as people read it, by turns, and while it grows."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until
from consoles import CONSOLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
TOOLS = FIXTURES / "claude" / "tools-2.1.98.jsonl"
CODES = re.compile(r"\x1b\[[0-9;]*m")


def said(shell: Any, *prompts: str) -> str:
    """Return an agent of the provider echo that was sent some prompts."""
    agent: str = shell.new("--name", "demo")
    for prompt in prompts:
        shell.ok("send", agent, prompt)
    return agent


def shape(text: str) -> str:
    """Return a page without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d+\.\d s", "TOOK", text)
    return re.sub(r"demo  .*", "demo  …", text)


def test_log_shows_an_agents_turns_with_their_times(shell: Any) -> None:
    """The prompt, the answer, what the turn took; the agent first."""
    said(shell, "one", "two\nlines")

    assert shape(shell.ok("log", "demo").out) == (
        "demo  …\n\n-- turn 1, TIME --\n\n> one\n\none\n\nTOOK, 1 tokens in, 1 out\n\n"
        "-- turn 2, TIME --\n\n> two\n> lines\n\ntwo\nlines\n\nTOOK, 2 tokens in, 2 out\n"
    )


def test_log_says_which_agent_a_message_is_from(shell: Any) -> None:
    """By its name, and without the tag that the model reads."""
    parent = shell.new("--name", "demo")
    spawn = ("spawn", "Red.", "--parent", parent, "--name", "fox", "--detach")
    shell.process(*spawn, stdout=subprocess.DEVNULL)
    until(lambda: "> subagent" in shell.ok("log", "demo").out, "that the answer has come")
    assert "> subagent fox answered: Red.\n" in shell.ok("log", "demo").out


def test_without_an_operand_it_is_the_agent_of_this_folder(shell: Any) -> None:
    """`log` and `last` mean @last; without such an agent they exit 10."""
    assert [shell("log").code, shell("last").code] == [10, 10]
    said(shell, "hello")
    assert "> hello" in shell.ok("log").out
    assert shell.ok("last").out == "hello\n"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--turns", "2"], "2"),
        (["--turns", "2..3"], "23"),
        (["--turns", "3.."], "34"),
        (["--turns", "..2"], "12"),
        (["--turns", "3..99"], "34"),
        (["-n", "1"], "4"),
        (["-n", "9"], "1234"),
        ([], "1234"),
    ],
)
def test_turns_are_chosen_by_number_or_from_the_end(
    shell: Any, given: list[str], shown: str
) -> None:
    """As pages, and as blocks."""
    agent = said(shell, "1", "2", "3", "4")

    page = shell.ok("log", agent, *given).out
    blocks = shell.ok("log", agent, *given, "--json").rows

    assert "".join(re.findall(r"^> (\d)$", page, re.MULTILINE)) == shown
    assert [b["content"] for b in blocks if b["type"] == "user_message"] == list(shown)
    assert {b["type"] for b in blocks} == {"user_message", "assistant_text"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--turns", "5"], "there is no turn 5; there are 4 turns"),
        (["--turns", "x"], "--turns is N, N..M, N.. or ..M"),
        (["--turns", ".."], "--turns is N"),
        (["--turns", "0"], "there are no turns 0; the first is 1"),
        (["--turns", "3..2"], "there are no turns 3..2"),
        (["--turns", "1" * 40], "--turns is N"),
        (["--turns", "1", "-n", "1"], "in two ways"),
        (["--turns", "1", "--follow"], "--follow"),
        (["--until-idle", "1"], "goes with --follow"),
        (["--color", "blue"], "--color is auto, always or never"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(shell: Any, given: list[str], words: str) -> None:
    """Exit 2, and why."""
    agent = said(shell, "1", "2", "3", "4")
    done = shell("log", agent, *given)
    assert (done.code, done.out, words in done.err) == (2, "", True), done


def test_a_transcript_and_a_native_session_are_shown_as_well(shell: Any) -> None:
    """By its path, on standard input, and by the start of its id in the client's store."""
    name = "00000001-0000-4000-8000-000000000001"
    store = shell.home / ".claude" / "projects" / "-w"
    store.mkdir(parents=True)
    shutil.copy(TOOLS, store / f"{name}.jsonl")
    text = orjson.loads(TOOLS.read_bytes().split(b"\n")[2])
    native = text.get("sessionId", name)
    (store / f"{name}.jsonl").rename(store / f"{native}.jsonl")

    pages = [
        shell.ok("log", str(TOOLS)).out,
        shell.ok("log", "-", stdin=TOOLS.read_bytes()).out,
        shell.ok("log", native[:8]).out,
    ]

    assert pages[0] == pages[1] == pages[2]
    assert "* Bash(echo out; echo err >&2; exit 3)\n  -> failed: Exit code 3" in pages[0]
    assert shell.ok("last", str(TOOLS)).out == shell.ok("last", native[:8]).out
    assert shell.ok("last", str(TOOLS), "--json").json["agentId"] is None


def test_an_agent_goes_before_a_file_or_folder_of_its_name(shell: Any) -> None:
    """A folder `docs` does not hide the agent docs; a transcript is named by its suffix."""
    (shell.cwd / "demo").mkdir()
    said(shell, "hello")
    shutil.copy(TOOLS, shell.cwd / "other")

    assert "> hello" in shell.ok("log", "demo").out
    assert "Read" in shell.ok("log", "other").out
    assert shell("log", "nowhere").code == 10
    (shell.cwd / "folder").mkdir()
    assert shell("log", "folder").code == 2


def test_tools_are_lines_and_with_tools_they_are_whole(shell: Any) -> None:
    """What was given, and what came back, with nothing cut."""
    folded, whole = shell.ok("log", str(TOOLS)).out, shell.ok("log", str(TOOLS), "--tools").out

    assert "* Write(/w/made.txt)\n  -> File created successfully at: /w/made.txt, " in folded
    assert "~ thought: I should look at the file first.\n" in folded
    assert "content:" not in folded
    assert "* Edit\n    replace_all: false\n    file_path: /w/made.txt\n" in whole
    assert "  error of Bash:\n    Exit code 3\n    out\n    err\n" in whole


def test_a_failed_turn_says_why(shell: Any) -> None:
    """And `last` gives the answer before it, and says that it is not of the last turn."""
    script = shell.cwd / "talk.jsonl"
    good = {"type": "assistant_text", "id": "t", "content": "fine"}
    done = {"type": "block_complete", "blockId": "t", "conversationId": "main", "block": good}
    lines: list[Any] = [{"type": "turn"}, done, {"type": "turn"}]
    lines.append({"type": "error", "kind": "rate-limited", "message": "later\x1b[31m"})
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    agent = shell.script(str(script), "--name", "talk")
    shell.ok("send", agent, "one")
    assert shell("send", agent, "two").code == 14

    assert "-- the turn failed: later\\x1b[31m\n" in shell.ok("log", agent).out
    last = shell("last", agent)
    assert (last.code, last.out) == (0, "fine\n")
    assert last.err == "agentsdir: this is the answer of turn 1; turn 2 has none\n"
    assert shell("last", agent, "--json").json["turn"] == 1


def test_an_agent_without_an_answer_has_no_last_one(shell: Any) -> None:
    """Exit 13, `no-answer`; its log is empty, which is no error."""
    agent = shell.new()
    done = shell("last", agent, "--json")
    assert (done.code, done.error["kind"]) == (13, "no-answer")
    assert shell.ok("log", agent).out.startswith(agent)


def test_damage_of_the_log_is_named_and_the_rest_is_shown(shell: Any) -> None:
    """Exit 3, as for any reading."""
    agent = said(shell, "one", "two")
    log = shell.folder(agent) / "events.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[3] = b'{"bad'
    log.write_bytes(b"\n".join(lines))

    done = shell("log", agent)

    assert (done.code, "bad-json" in done.err, "> two" in done.out) == (3, True, True)
    assert shell("last", agent).code == 3


def test_a_pipe_gets_no_code_unless_it_is_asked_for(shell: Any) -> None:
    """--color always, or CLICOLOR_FORCE, gives a pipe what a terminal gets."""
    agent = said(shell, "**strong** \x1b[31m")
    assert "\x1b" not in shell.ok("log", agent).out
    assert "**strong** \\x1b[31m" in shell.ok("log", agent).out
    always = shell.ok("log", agent, "--color", "always").out
    assert "\x1b[1mstrong\x1b[0m" in always
    assert "\\x1b[31m" in CODES.sub("", always)
    assert "\x1b" not in CODES.sub("", always)
    assert shell.ok("last", agent).out == "**strong** \x1b[31m\n"
    assert "\x1b" not in shell.ok("last", agent, tty=True).out


EVIL = "\x1b]8;;http://evil\x1b\\x\x1b]0;owned\x07\u202e\r\x9b31m\u2028"


def test_nothing_in_a_log_drives_a_terminal(shell: Any) -> None:
    """Names, tools, inputs, results, notices, threads, folded and whole."""
    blocks: list[dict[str, Any]] = [
        {"type": "user_message", "content": EVIL},
        {"type": "assistant_text", "content": EVIL},
        {"type": "thinking", "content": EVIL},
        {"type": "tool_use", "toolName": EVIL, "toolUseId": EVIL, "input": {EVIL: EVIL},
         "status": "success"},
        {"type": "tool_result", "toolUseId": EVIL, "output": EVIL, "isError": True},
        {"type": "tool_result", "toolUseId": "other", "output": [{"type": EVIL}], "isError": False},
        {"type": "system", "subtype": "error", "message": EVIL},
        {"type": "subagent", "subagentId": "s", "name": EVIL, "input": EVIL, "status": "error"},
        {"type": "assistant_text", "content": EVIL, "conversationId": EVIL},
    ]  # fmt: skip
    lines = [
        {"type": "block_complete", "blockId": f"b{n}", "conversationId": "main",
         "block": {"id": f"b{n}", "conversationId": "main", **block}}
        for n, block in enumerate(blocks)
    ]  # fmt: skip
    script = shell.cwd / "talk.jsonl"
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    agent = shell.script(str(script))
    shell.ok("send", agent, "go")

    for options in ([], ["--tools"], ["--color", "always"], ["--color", "always", "--tools"]):
        page = CODES.sub("", shell.ok("log", agent, *options, tty=True).out)
        assert not set(page) & set("\x1b\x07\u202e\r\x9b\u2028"), options
        assert "owned" in page


def test_follow_goes_on_until_nothing_is_added_and_no_turn_runs(shell: Any) -> None:
    """It begins with the last turn, or as many as -n says; a turn that runs is waited for."""
    agent = said(shell, "one", "two")

    def followed(*options: str) -> str:
        page = shell.ok("log", agent, "--follow", "--until-idle", "0.2", *options).out
        return "".join(re.findall(r"^> (\w+)$", page, re.MULTILINE))

    assert [followed(), followed("-n", "2")] == ["two", "onetwo"]
    rows = shell.ok("log", agent, "-f", "--until-idle", "0", "--json").rows
    assert [row["type"] for row in rows] == ["user_message", "assistant_text"]


def test_follow_shows_what_is_added_by_an_agent_and_those_that_it_spawns(shell: Any) -> None:
    """Of any provider, until Ctrl-C."""
    agent = said(shell, "one")
    following = shell.start("log", agent, "--follow")
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            piece = following.stdout.read1()
            assert piece, shown
            shown += piece

    try:
        read_until(b"> one")
        shell.ok("send", agent, "two")
        shell.ok("spawn", "--parent", agent, "--name", "helper", "the task")
        read_until(b"> the task")
        shell.ok("send", agent, "three")
        read_until(b"> three")
        following.send_signal(signal.SIGINT)
        shown += following.stdout.read()
    finally:
        following.kill()
        following.stdout.close()
    assert following.wait() == 130
    text = shown.decode()
    assert re.findall(r"^> (\w+)$", text, re.MULTILINE) == ["one", "two", "three"]
    assert "    [helper]\n\n    > the task\n" in text


def test_follow_of_a_transcript_is_a_page_too(shell: Any) -> None:
    """As `follow` shows it on a terminal; -n is for agents."""
    shutil.copy(TOOLS, shell.cwd / "s.jsonl")
    page = shell.ok("log", "s.jsonl", "--follow", "--until-idle", "0").out
    assert "* Bash(echo out; echo err >&2; exit 3)\n  -> failed: Exit code 3" in page
    assert shell("log", "s.jsonl", "--follow", "-n", "1").code == 2


@pytest.mark.parametrize("kind", CONSOLES)
def test_on_a_terminal_a_long_log_is_paged(shell: Any, kind: str) -> None:
    """`less` waits with the first page; a short one is left on the screen."""
    said(shell, *(f"**prompt** {number}" for number in range(40)))
    program = Path(sys.executable).with_name("agentsdir")
    variables = {**shell.environment(), "TERM": "xterm", "PS1": "> "}
    variables = {k: v for k, v in variables.items() if k not in ("PAGER", "LESS", "NO_COLOR")}
    with CONSOLES[kind](variables, shell.cwd) as console:
        console.type(f"{program} log demo")
        until(lambda: "turn 3" in console.shown, "the first page")
        assert "turn 39" not in console.shown
        console.type("q")
        console.type(f"{program} last demo; echo ended $?")
        until(lambda: "ended 0" in console.shown, "the last answer")
        assert "prompt 39" in CODES.sub("", console.shown)
        assert "**prompt** 39" not in console.shown
