"""The prompt at a real terminal: what is shown, typed ahead, interrupted, resized, killed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from chat_terminal import PROGRAM, TURN, ChatTerminal, begin, delta, needs_tmux, sleep, text

from agentsdir.cli.chat.slash import OWN
from agentsdir.cli.command_line import COMMANDS

pytestmark = needs_tmux

Start = Callable[..., ChatTerminal]
CHAT = shlex.join([sys.executable, "-c", PROGRAM, "chat"])
LONG = sleep(120)
"""A turn that lasts until it is interrupted."""


def scripted(
    chat: Start, *lines: dict[str, object], name: str = "talk", **more: object
) -> ChatTerminal:
    """Start a prompt with an agent that plays a script."""
    terminal = chat(**more)
    script = terminal.script(f"{name}.jsonl", *lines)
    terminal.line(f"/new {name} --provider script -o file={script}")
    terminal.wait_for(f"^── {name} · script")
    return terminal


@pytest.mark.feature("C-13")
def test_the_first_prompt_makes_an_agent_and_the_next_conversation_goes_on_with_it(
    chat: Start,
) -> None:
    """The second one says which agent that is, and shows its last turn."""
    first = chat()
    first.wait_for("no agent yet")
    first.line("Hello, **agent**")
    first.wait_for(r"(?m)^> Hello, \*\*agent\*\*\n\nHello, agent\n")
    first.keys("C-d")
    first.wait_until(lambda _: first.has_ended, "the end")

    again = chat()
    shown = again.wait_for("going on with .*, just now; /new for another")
    again.line("once more")
    shown = again.wait_for("^once more")
    assert "Hello, agent" in shown  # the last turn is shown
    assert len(list((again.root / "agents").iterdir())) == 1


def test_an_answer_is_shown_as_it_comes_and_laid_out_when_a_piece_is_whole(chat: Start) -> None:
    """A heading is laid out; the paragraph after it is shown as far as it came."""
    pieces = [begin("a"), delta("a", "# The change\n\nIt touches "), LONG]
    terminal = scripted(chat, *pieces)
    terminal.line("what changed?")
    shown = terminal.wait_for("It touches\n. \\d+ s · answering")
    assert "# The change" not in shown
    assert "The change" in shown
    terminal.wait_for_status("talk · working · script")
    terminal.keys("C-c")
    terminal.wait_for("^interrupted")
    terminal.wait_for_status("talk · active · script")
    assert "answering" not in terminal.shown


def test_a_tool_call_is_a_line_and_can_be_unfolded(chat: Start) -> None:
    """Its input and its result are shown on request."""
    call = {"type": "tool_use", "id": "u", "toolUseId": "t", "toolName": "Bash",
            "input": {"command": "ls"}, "status": "success"}  # fmt: skip
    result = {"type": "tool_result", "id": "r", "toolUseId": "t", "output": "one\ntwo\nthree",
              "isError": False}  # fmt: skip
    terminal = scripted(
        chat,
        {"type": "block_complete", "blockId": "u", "block": call},
        {"type": "block_complete", "blockId": "r", "block": result},
        text("a", "There are three."),
    )
    terminal.line("list")
    shown = terminal.wait_for("There are three")
    assert "● Bash(ls)" in shown
    assert "three\n" not in shown
    terminal.keys("C-o")
    terminal.wait_for("^  one\n  two\n  three")
    terminal.line("/unfold 7")
    terminal.wait_for("this turn has no such tool call")


def test_what_is_typed_ahead_is_queued_and_sent_in_its_order(chat: Start) -> None:
    """It is in the inbox, is shown until it is sent, and leaves half a line as it is."""
    terminal = scripted(
        chat,
        TURN,
        sleep(8),
        text("a", "first"),
        TURN,
        text("a", "second"),
        TURN,
        text("a", "third"),
    )
    terminal.line("one")
    terminal.line("two")
    terminal.line("three")
    terminal.type("half ty")
    terminal.wait_for("^1 queued: two\n2 queued: three\n> half ty")
    pending = terminal.inspect("talk")["pending"]
    assert isinstance(pending, list)
    assert [one["content"][0]["text"] for one in pending] == ["two", "three"]

    shown = terminal.wait_for("^third\n(.*\n)*> half ty$")

    assert re.findall("^(> .*|first|second|third)$", shown, re.MULTILINE) == [
        f"> /new talk --provider script -o file={terminal.folder}/talk.jsonl",
        "> one", "first", "> two", "second", "> three", "third", "> half ty",
    ]  # fmt: skip
    assert "queued:" not in shown
    terminal.type("ped")
    terminal.wait_for("^> half typed")


def test_ctrl_c_interrupts_the_turn_and_holds_what_waits_until_it_is_sent_or_dropped(
    chat: Start,
) -> None:
    """What was dropped is never sent."""
    terminal = scripted(chat, TURN, LONG, TURN, text("a", "second"), TURN, text("a", "third"))
    terminal.line("one")
    for line in ("two", "three", "four"):
        terminal.line(line)
    terminal.wait_for("^3 queued: four")
    terminal.wait_until(lambda _: terminal.inspect("talk")["openTurn"], "a turn")
    terminal.keys("C-c")
    shown = terminal.wait_for("^prompts wait in its inbox")
    assert "interrupted" in shown
    terminal.line("/queue drop 2")
    terminal.wait_until(lambda shown: "3 queued" not in shown, "two prompts")
    terminal.line("/queue")
    terminal.wait_for("^1  two\n2  four")
    terminal.keys("Enter")
    shown = terminal.wait_for("^> four\n\nthird")
    assert "^> three" not in shown
    assert "three" not in re.findall("^> (.*)$", shown, re.MULTILINE)


def test_ctrl_c_twice_leaves_and_ctrl_d_leaves_only_an_idle_agent_at_once(chat: Start) -> None:
    """A turn that runs then is ended, and recorded as that."""
    terminal = scripted(chat, LONG)
    terminal.line("one")
    terminal.wait_until(lambda _: terminal.inspect("talk")["openTurn"], "a turn")
    terminal.keys("C-d")
    terminal.wait_for_status("talk would be interrupted; Ctrl-D again leaves")
    terminal.keys("C-d")
    terminal.wait_until(lambda _: terminal.has_ended, "the end")
    assert "talk: its turn is interrupted" in terminal.shown
    assert terminal.inspect("talk")["openTurn"] is None

    idle = chat("chat", "talk")
    idle.wait_for_status("talk · active")
    idle.type("text")
    idle.keys("C-c")
    idle.wait_for_status("the line is gone")
    assert not idle.has_ended
    idle.keys("C-c")
    idle.wait_until(lambda _: idle.has_ended, "the end")


def test_a_background_agent_is_seen_to_finish_and_its_turn_to_be_whole(chat: Start) -> None:
    """One line says so; its answer is shown when one goes there."""
    terminal = scripted(chat, sleep(5), text("a", "done at last"), name="slow")
    terminal.line("work")
    terminal.line("/new other")
    terminal.wait_for("^── other · echo")
    terminal.wait_for_status("1 more at work")
    terminal.line("hello meanwhile")
    terminal.wait_for("^hello meanwhile")
    shown = terminal.wait_for("^● slow has finished · .* · /switch slow")
    assert "done at last" not in shown
    terminal.line("/switch slow")
    terminal.wait_for("^done at last")
    terminal.wait_for_status("^slow · active")


def test_lines_can_be_several_by_keys_by_a_backslash_and_in_the_editor(chat: Start) -> None:
    """Enter alone sends."""
    terminal = chat(EDITOR="sed -i s/three/3/")
    terminal.type("one\\")
    terminal.keys("Enter")
    terminal.type("two")
    terminal.keys("M-Enter")
    terminal.type("three")
    terminal.keys("C-j")
    terminal.type("four")
    terminal.wait_for("^> one\ntwo\nthree\nfour")
    terminal.keys("C-x", "C-e")
    terminal.wait_for("^> one\ntwo\n3\nfour")
    terminal.keys("Enter")
    terminal.wait_for("^> one\n  two\n  3\n  four")
    terminal.wait_until(lambda shown: shown.count("four") == 2, "the answer")


def test_a_paste_of_a_megabyte_is_folded_quick_and_sent_whole(chat: Start) -> None:
    """What is typed around it stays."""
    terminal = chat()
    terminal.type("What is ")
    paste = "".join(f"line {number}\r" for number in range(100_000))[:1_000_000]
    terminal.paste(paste)
    terminal.type("?")
    terminal.wait_for(r"^> What is \[pasted 1,000,000 characters #1\]\?")
    terminal.keys("Enter")
    terminal.wait_for_status("tokens")
    terminal.wait_for("characters$")
    terminal.wait_for_status("active")
    (log,) = (terminal.root / "agents").glob("[a-z]*/events.jsonl")
    terminal.wait_until(lambda _: b'"message.delivered"' in log.read_bytes(), "the end of the turn")
    sent = "What is " + paste.replace("\r", "\\n") + "?"
    assert sent in log.read_text()


def test_another_width_garbles_nothing(chat: Start) -> None:
    """The rows are drawn once, in the new width, and what was printed above them stays."""
    terminal = scripted(chat, LONG)
    terminal.line("one")
    terminal.line("a prompt that waits, longer than twenty columns")
    terminal.wait_for("^1 queued: a prompt that waits, longer than twenty columns$")
    terminal.wait_until(lambda _: terminal.inspect("talk")["openTurn"], "a turn")
    terminal.keys("C-c")
    terminal.wait_for("^prompts wait in its inbox")
    # Of rows that are gone, blanks may stay until a line is printed, and the terminal wraps them,
    # too; what is on its way meanwhile would be a matter of luck.
    terminal.wait_for_status("talk · active")
    terminal.line("/nothing")
    terminal.wait_for("there is no /nothing")
    terminal.type("a line that is longer than twenty columns, too")
    terminal.wait_for("^> a line that is longer than twenty columns, too$")
    before = terminal.wait_until_still()
    for columns, rows in ((20, 30), (100, 30), (20, 40), (60, 30), (100, 30)):
        terminal.resize(columns, rows)
        shown = terminal.wait_until_still()
        assert shown.count("queued:") == 1, shown
        assert shown.count("> a line") == 1, shown
        assert shown.count("talk · ") == 2, shown  # one is of the heading
        assert all(len(row) <= columns for row in terminal.screen)
    assert shown == before


def test_a_turn_that_is_shown_while_the_width_changes_stays_readable(chat: Start) -> None:
    """The rows at the bottom are whole, whatever was drawn in the moment of the change."""
    terminal = scripted(chat, begin("a"), delta("a", "an answer in pieces"), LONG)
    terminal.line("one")
    terminal.wait_for("^an answer in pieces")
    terminal.type("half a line")
    for columns, rows in ((20, 10), (100, 30)):
        terminal.resize(columns, rows)
        terminal.wait_until(
            lambda _: re.search(
                r"an answer in pieces\n. \d+ s · answering.*\n> half a line\ntalk · working · s",
                "\n".join(terminal.screen),
            ),
            "the rows in another width",
        )
    terminal.keys("C-c")
    terminal.wait_for("^interrupted")


def test_killed_and_begun_again_nothing_is_lost(chat: Start) -> None:
    """What waits is in the inbox, what was typed in the history; the turn is recorded as ended."""
    first = scripted(chat, TURN, LONG, TURN, text("a", "second"), TURN, text("a", "third"))
    first.line("one")
    first.line("two")
    first.line("three")
    first.wait_for("^2 queued: three")
    first.wait_until(lambda _: len(first.inspect("talk")["pending"]) == 2, "both in the inbox")  # type: ignore[arg-type]
    os.kill(first.pid, signal.SIGKILL)
    # The process behind it sees that, and ends the turn.
    first.wait_until(lambda _: first.inspect("talk")["status"] == "idle", "the end of the turn")

    again = chat()
    again.wait_for("^1 queued: two\n2 queued: three")
    again.wait_for("^prompts wait in its inbox")
    again.keys("Up", "Up")
    again.wait_for("^> two")
    again.keys("C-u", "Enter")
    again.wait_for("^> three\n\nthird")


def test_nothing_in_an_answer_a_name_or_a_path_acts_on_the_terminal(chat: Start) -> None:
    """Control characters are shown as escapes, in Markdown, tool calls and completions."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b31m"
    terminal = scripted(
        chat,
        begin("a"),
        delta("a", f"see {evil} &#27;[2J [link](https://x/\x1b]8;;) \n\n"),
        delta("a", f"```\n{evil}\n```\n"),
        {"type": "block_complete", "blockId": "t",
         "block": {"type": "tool_use", "id": "u", "toolUseId": "t", "toolName": f"T{evil}",
                   "input": {"command": evil}, "status": "success"}},
        text("b", "the end"),
    )  # fmt: skip
    (terminal.home / "\x1b[2Jfile").write_text("")
    terminal.line("go")
    terminal.wait_for("^the end")
    terminal.keys("C-o")
    terminal.wait_for("^input:")
    terminal.type("@")
    terminal.keys("Tab")
    time.sleep(0.5)
    shown = terminal.shown
    assert "> go" in shown  # nothing was cleared
    assert "\\x1b]0;owned" in shown
    assert "\u202e" not in shown
    assert "owned" not in terminal.tmux("display-message", "-p", "#{pane_title}")


@pytest.mark.parametrize(("columns", "rows"), [(2, 2), (1, 1), (9, 3), (500, 300)])
def test_a_terminal_of_any_size_takes_a_prompt(chat: Start, columns: int, rows: int) -> None:
    """Also one that lies about it."""
    terminal = chat("--version")
    terminal.resize(max(columns, 2), max(rows, 2))
    size = f"stty cols {columns} rows {rows}"
    terminal.tmux("respawn-pane", "-k", "sh", "-c", f"{size}; exec {CHAT}")
    terminal.line("hi")  # typed before the prompt is there
    terminal.wait_until(lambda _: list((terminal.root / "agents").glob("[a-z]*")), "an agent")
    (log,) = (terminal.root / "agents").glob("[a-z]*/events.jsonl")
    terminal.wait_until(lambda _: b'"turn.complete"' in log.read_bytes(), "the answer")
    assert "Traceback" not in terminal.shown


def test_lines_typed_before_the_prompt_is_there_and_right_before_leaving_are_sent_or_kept(
    chat: Start,
) -> None:
    """Each is a prompt of its own, in its order."""
    terminal = chat("--version")
    terminal.agentsdir("new", "--name", "talk")
    terminal.tmux("respawn-pane", "-k", "sh", "-c", f"echo ready; sleep 1; exec {CHAT} talk")
    terminal.wait_for("^ready")
    terminal.keys("one", "Enter", "two", "Enter", "three", "Enter", "half")
    terminal.wait_for("^> three\n\nthree")
    terminal.wait_for("^> half")

    terminal.keys("C-u", "four", "Enter", "five", "Enter", "C-d", "C-d")
    terminal.wait_until(lambda _: terminal.has_ended, "the end")
    pending = terminal.inspect("talk")["pending"]
    assert isinstance(pending, list)
    log = terminal.agentsdir("log", "talk", "--no-pager")
    sent = re.findall("^> (.*)", log, re.MULTILINE)
    kept = [one["content"][0]["text"] for one in pending]
    assert list(dict.fromkeys(sent + kept)) == ["one", "two", "three", "four", "five"]


def test_a_command_that_leaving_overtakes_is_named(chat: Start) -> None:
    """It is not done, and the prompts behind it are kept."""
    terminal = chat()
    terminal.line("/new talk")
    terminal.wait_for("^── talk")
    terminal.keys("a", "Enter", "/tag +x", "Enter", "b", "Enter", "C-d", "C-d")
    shown = terminal.wait_until(lambda _: terminal.has_ended, "the end")
    assert "not done, since you left: /tag +x" in terminal.shown or "+x" in shown
    log = (next((terminal.root / "agents").glob("[a-z]*")) / "events.jsonl").read_text()
    assert '"text":"b"' in log


def test_leaving_in_mid_turn_keeps_what_was_shown_of_the_answer(chat: Start) -> None:
    """As an interrupt does."""
    terminal = scripted(chat, begin("a"), delta("a", "word after word"), LONG)
    terminal.line("go")
    terminal.wait_for("^word after word")
    terminal.keys("C-d")
    terminal.wait_for_status("Ctrl-D again leaves")
    terminal.keys("C-d")
    terminal.wait_until(lambda _: terminal.has_ended, "the end")
    terminal.wait_for("^word after word")


def test_a_paste_while_lines_are_printed_is_one(chat: Start) -> None:
    """The terminal sets its marks around a paste until the prompt leaves, or hands it over."""
    answers = (f"a{number}" for number in range(5))
    steps = [step for name in answers for step in (text(name, name), sleep(0.2))]
    terminal = scripted(chat, *steps)
    written = terminal.folder / "written"
    terminal.tmux("pipe-pane", f"cat > {shlex.quote(str(written))}")
    terminal.line("talk")
    terminal.wait_for("^a4\n")
    terminal.resize(60, 20)
    terminal.wait_for_status("active")
    assert b"\x1b[?2004l" not in written.read_bytes()
    terminal.keys("C-d")
    terminal.wait_until(lambda _: b"\x1b[?2004l" in written.read_bytes(), "the end of the marks")


def test_a_mark_of_the_end_of_a_paste_in_the_pasted_text_ends_no_paste(chat: Start) -> None:
    """What is behind it are no keys, however often and with whatever marks."""
    terminal = chat()
    terminal.paste("a\x1b[201~b\r/quit\r\x1b[200~c\x1b[201~\r/quit\r")
    terminal.wait_for("^> ab\n/quit\nc\n/quit$")
    terminal.type("!")
    terminal.wait_for("^!")
    assert not terminal.has_ended


def test_after_a_stop_by_a_signal_keys_are_keys_again(chat: Start) -> None:
    """The shell has set the terminal up for itself meanwhile."""
    terminal = chat("--version")
    terminal.tmux("respawn-pane", "-k", "bash", "--norc", "-i")
    terminal.line(f"PS1='$ '; {CHAT} & fg")
    terminal.wait_for_status("no agent yet")
    (running,) = subprocess.run(
        ["pgrep", "-P", str(terminal.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(running), signal.SIGSTOP)
    terminal.wait_for("Stopped")
    terminal.line("fg")
    terminal.wait_for_status("no agent yet")
    terminal.line("hello again")
    terminal.wait_for("^> hello again\n\nhello again")


def test_ctrl_c_in_a_pager_is_the_pagers(chat: Start) -> None:
    """The turn behind it goes on."""
    terminal = scripted(
        chat,
        TURN, text("a", "\n\n".join(f"line {n}" for n in range(100))), TURN, LONG,
        AGENTSDIR_PAGER="less",
    )  # fmt: skip
    terminal.line("one")
    terminal.wait_for("^line 99")
    terminal.line("two")
    terminal.wait_until(lambda _: terminal.inspect("talk")["openTurn"], "a turn")
    terminal.line("/log")
    terminal.wait_until(
        lambda _: terminal.screen[-2].startswith(":") or ":" in terminal.screen, "less"
    )
    terminal.keys("C-c")
    time.sleep(0.5)
    terminal.keys("C-c")
    terminal.type("q")
    terminal.wait_for_status("talk · working")
    assert not terminal.has_ended


@pytest.mark.parametrize(
    "editor", ["rm", "false", "/nonexistent/editor", "sh -c 'printf \"\\377\" > $0'"]
)
def test_an_editor_that_fails_leaves_the_line_as_it_was(chat: Start, editor: str) -> None:
    """One that removes the file, fails, is not there, or writes what is no text."""
    terminal = chat(VISUAL=editor)
    terminal.type("orig")
    terminal.wait_for("^> orig")
    terminal.keys("C-x", "C-e")
    terminal.wait_for_status("the line is as it was")
    terminal.type("inal")
    shown = terminal.wait_for("^> original")
    assert "Traceback" not in shown


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_the_prompt_and_says_nothing_of_the_program(chat: Start, number: int) -> None:
    """Also while it completes a line."""
    terminal = scripted(chat, LONG)
    terminal.line("go")
    terminal.wait_until(lambda _: terminal.inspect("talk")["openTurn"], "a turn")
    terminal.type("/s @" + "a word " * 20)
    os.kill(terminal.pid, number)
    terminal.wait_until(lambda _: terminal.has_ended, "the end")
    assert "Traceback" not in terminal.shown
    assert terminal.inspect("talk")["openTurn"] is None
    terminal.wait_until(lambda _: terminal.exit_code == str(128 + number), "the exit code")


def test_queue_drop_counts_from_one(chat: Start) -> None:
    """0 and numbers below it are none."""
    terminal = scripted(chat, LONG)
    terminal.line("one")
    terminal.line("two")
    terminal.wait_for("^1 queued: two")
    for number in ("0", "-1"):
        terminal.line(f"/queue drop {number}")
    terminal.wait_until(lambda shown: shown.count("/queue drop N, or /queue drop all") == 2, "a no")
    assert "1 queued: two" in terminal.shown


def test_escape_on_an_empty_line_interrupts_and_in_a_line_does_nothing(chat: Start) -> None:
    """The row of the turn names the other key."""
    terminal = scripted(chat, LONG)
    terminal.line("one")
    terminal.wait_for("^. \\d+ s · .* · Ctrl-C interrupts$")
    terminal.type("text")
    terminal.keys("Escape")
    time.sleep(1)
    assert terminal.inspect("talk")["openTurn"]
    terminal.keys("C-u", "Escape")
    terminal.wait_for("^interrupted")
    terminal.type("one")
    terminal.keys("M-Enter")
    terminal.type("two")
    terminal.wait_for("^> one\ntwo")


def test_mode_completes_to_modes_and_says_briefly_what_one_does(chat: Start) -> None:
    """With the agent's name, not with an id or a path."""
    terminal = chat()
    terminal.line("/new talk --provider claude")
    terminal.wait_for("^── talk · claude")
    terminal.type("/mode acc")
    terminal.wait_for("^  acceptEdits  edits files")
    terminal.keys("Tab")
    terminal.wait_for("^> /mode acceptEdits")
    terminal.keys("Enter")
    terminal.keys("Enter")
    shown = terminal.wait_for("^talk: permission-mode acceptEdits: edits files in its folder")
    assert str(terminal.home) not in shown.split("/mode acceptEdits")[-1].split("\n> ")[0]
    terminal.wait_for_status("acceptEdits")


def test_sessions_of_clients_are_named_and_gone_on_with(chat: Start) -> None:
    """Where no agent is, the first screen names them; /new --from shows the last turn."""
    terminal = chat("--version")
    session = "1d2c7f0a-5b0e-4b43-9d2e-0a6f1c3b5d7e"
    folder = terminal.home / ".claude/projects/-here"
    folder.mkdir(parents=True)
    common = {"sessionId": session, "cwd": str(terminal.home), "version": "2.1.98",
              "isSidechain": False, "timestamp": "2026-01-02T03:04:05.000Z"}  # fmt: skip
    rows = [
        {**common, "type": "user", "uuid": "u1", "parentUuid": None,
         "message": {"role": "user", "content": "What is up?"}},
        {**common, "type": "assistant", "uuid": "a1", "parentUuid": "u1",
         "message": {"id": "m1", "role": "assistant", "model": "m", "type": "message",
                     "content": [{"type": "text", "text": "The sky is."}]}},
    ]  # fmt: skip
    (folder / f"{session}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = chat()
    again.wait_for(f"^a session of claude here: /new --from {session[:8]}$")
    again.line(f"/new --from {session[:8]}")
    again.wait_for("^> What is up\\?\n\nThe sky is.")


def test_help_breaks_between_words(chat: Start) -> None:
    """At any width."""
    terminal = chat(columns=60)
    terminal.line("/help")
    shown = terminal.wait_for("adapters$")
    listed = shown.split("/inspect:\n")[1].split("\n>")[0]
    others = [name for name in COMMANDS if name not in OWN and name != "chat"]
    assert listed.replace("\n", " ").split(", ") == others
    assert all(len(row) < 60 for row in shown.split("\n"))


def test_the_status_names_slots_only_where_all_are_taken(chat: Start) -> None:
    """Where they are, another session is suspended with the next turn."""
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for_status("active")
    assert "slots" not in terminal.shown.split("\n")[-1]
    (terminal.root / "settings.toml").write_text("max_slots = 1\n")
    again = chat()
    again.wait_for_status("all 1 slots are taken")


def test_a_session_without_input_is_suspended(chat: Start) -> None:
    """After `idle_timeout`, and a line says so."""
    terminal = chat("--version")
    terminal.agentsdir("new", "--name", "talk")
    (terminal.root / "settings.toml").write_text("idle_timeout = 1\n")
    again = chat("chat", "talk")
    again.line("hello")
    again.wait_for("^talk is suspended: it was idle")
    again.wait_for_status("^talk · suspended")


def test_the_help_of_a_command_that_makes_agents_makes_none(chat: Start) -> None:
    """And the next line is done."""
    terminal = chat()
    terminal.line("/new --help")
    terminal.wait_for("agentsdir new")
    terminal.line("hello")
    terminal.wait_for("^> hello\n\nhello")
    terminal.line("/fork --help")
    terminal.wait_for("agentsdir fork")
    assert "Traceback" not in terminal.shown
    assert len(list((terminal.root / "agents").glob("[a-z]*"))) == 1


def test_a_paste_is_brought_back_whole_in_another_conversation(chat: Start) -> None:
    """Not the words that stood for it, which may stand for another one by then."""
    first = chat()
    first.paste("one\r" * 10)
    first.wait_for("^> .pasted 40 characters #1.$")
    first.keys("Enter")
    first.wait_for_status("active")
    first.keys("C-d")
    first.wait_until(lambda _: first.has_ended, "the end")
    again = chat()
    again.wait_for_status("active")
    again.paste("two\r" * 10)
    again.wait_for("^> .pasted 40 characters #1.$")
    again.keys("C-u", "Up")
    again.wait_for("^> one\none\n")
    assert "> two" not in again.shown
