"""What is piped in beside a prompt in words, and what is left alone.

See docs/behaviour.md, "Routing".
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agentsdir.cli import prompts
from agentsdir.cli.environment import HOOK_OF

DIFF = b"-old\n+new\n"
ADDED = "explain this\n\n-old\n+new"


@contextmanager
def piped(data: bytes, *, still_open: bool = False) -> Iterator[BinaryIO]:
    """Give a pipe's reading end; its writer has written `data`, and has gone or says no more."""
    ours, theirs = os.pipe()
    os.write(theirs, data)
    if not still_open:
        os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        yield stream
    if still_open:
        os.close(theirs)


def prompts_of(shell: Any, agent: str) -> list[str]:
    """Return the texts that an agent was sent."""
    lines = (shell.folder(agent) / "events.jsonl").read_bytes().splitlines()
    sent = [r["data"] for r in map(json.loads, lines) if r["event"] == "message.enqueued"]
    return [part["text"] for data in sent for part in data["content"]]


@pytest.mark.parametrize("verb", ["send", "queue"])
def test_what_is_piped_in_is_added_to_the_prompt(shell: Any, verb: str) -> None:
    """The prompt, a blank line, and the input."""
    agent = shell.new()
    with piped(DIFF) as stdin:
        shell.ok(verb, agent, "explain this", stdin=stdin)
    assert prompts_of(shell, agent) == [ADDED]


def test_a_subagents_task_and_that_of_an_agent_file_have_it_too(shell: Any) -> None:
    """An agent file's prompt is words as well."""
    parent = shell.new()
    (shell.cwd / "reviewer.toml").write_text('prompt = "explain this"\n')
    for words in (["explain this"], ["--file", "reviewer.toml"]):
        with piped(DIFF) as stdin:
            done = shell.ok("spawn", "--parent", parent, *words, stdin=stdin)
        assert done.out == ADDED + "\n"


def test_a_file_and_a_socket_are_read_as_a_pipe_is(shell: Any, tmp_path: Path) -> None:
    """Node.js gives sockets to its children."""
    (tmp_path / "diff").write_bytes(DIFF)
    with (tmp_path / "diff").open("rb") as stdin:
        assert shell.ok("send", shell.new(), "explain this", stdin=stdin).out == ADDED + "\n"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(DIFF)
        theirs.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as stdin:
            assert shell.ok("send", shell.new(), "explain this", stdin=stdin).out == ADDED + "\n"


@pytest.mark.parametrize("blocks", [True, False])
def test_input_that_comes_in_pieces_is_whole(shell: Any, blocks: bool) -> None:
    """Another process that shares a pipe may have made it one that does not block."""
    agent = shell.new()
    ours, theirs = os.pipe()
    os.set_blocking(ours, blocks)

    def write() -> None:
        for piece in (b"one ", b"two ", b"three"):
            os.write(theirs, piece)
            os.sched_yield()
        os.close(theirs)

    with ThreadPoolExecutor() as threads, os.fdopen(ours, "rb") as stdin:
        threads.submit(write)
        shell.ok("send", agent, stdin=stdin)
    assert prompts_of(shell, agent) == ["one two three"]


@pytest.mark.parametrize(
    "target",
    [
        ["--connector", "telegram", "--user", "1", "--channel", "1", "--"],
        ["--cron", "nightly"],
        ["--heartbeat"],
        ["--create", "st", "--no-stdin"],
    ],
    ids=" ".join,
)
def test_input_is_left_alone_where_a_program_speaks_and_where_it_is_said(
    shell: Any, target: list[str]
) -> None:
    """A connector's, a timer's: their input is not what a person gave to this command."""
    with piped(DIFF) as stdin:
        assert shell.ok("send", *target, "explain this", stdin=stdin).out == "explain this\n"
        assert stdin.read() == DIFF


def test_nothing_and_blanks_add_nothing(shell: Any) -> None:
    """As at a timer's closed pipe, with `/dev/null` and with a closed standard input."""
    agent = shell.new()
    for data in (b"", b"\n \n"):
        with piped(data) as stdin:
            assert shell.ok("send", agent, "hi", stdin=stdin).out == "hi\n"
    with Path(os.devnull).open("rb") as stdin:
        assert shell.ok("send", agent, "hi", stdin=stdin).out == "hi\n"
    done = shell.sh(f"agentsdir send {agent} hi <&-")
    assert (done.stdout, done.stderr) == ("hi\n", "")


def test_a_pipe_that_says_nothing_is_waited_for_and_named(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that no process closes, as over ssh, holds no prompt up for long."""
    monkeypatch.setattr(prompts, "FIRST_BYTE_TIMEOUT", 0.05)
    with piped(b"", still_open=True) as stdin:
        done = shell("send", shell.new(), "hi", stdin=stdin)
    assert (done.code, done.out) == (0, "hi\n")
    assert "nothing came on standard input" in done.err
    with piped(b"", still_open=True) as stdin:
        shell.ok("send", shell.new(), "hi", "--no-stdin", stdin=stdin)


def test_a_loop_over_a_file_keeps_its_lines(shell: Any) -> None:
    """Each line is a prompt, and the input of the loop is not the input of `send`."""
    agent = shell.new()
    (shell.cwd / "list").write_text("one\ntwo\nthree\n")
    done = shell.sh(f'while read -r x; do agentsdir send {agent} "do $x"; done < list')
    assert prompts_of(shell, agent) == ["do one", "do two", "do three"]
    assert done.stderr.count("another program has begun to read") == 3
    done = shell.sh(
        f'cat list | while read -r x; do agentsdir send {agent} --no-stdin "do $x"; done'
    )
    assert (len(prompts_of(shell, agent)), done.stderr) == (6, "")


def test_what_a_hook_was_given_is_no_prompt(shell: Any, tmp_path: Path) -> None:
    """A hook reads its document itself, before or after it leaves a message."""
    shell.variables = {HOOK_OF: "another"}
    (tmp_path / "document").write_bytes(b"{}")
    with (tmp_path / "document").open("rb") as stdin:
        shell.ok("queue", shell.new("--name", "st"), "note", stdin=stdin)
        assert stdin.read() == b"{}"


@pytest.mark.parametrize("words", [[], ["explain this"]])
def test_the_limit_holds_while_reading(shell: Any, words: list[str]) -> None:
    """What is beyond it stays with its writer; nothing is sent."""
    agent = shell.new()
    with Path("/dev/zero").open("rb") as endless:
        done = shell("send", agent, "-", stdin=endless)
    assert (done.code, str(prompts.PROMPT_LIMIT) in done.err) == (2, True)
    with Path("/dev/zero").open("rb") as endless:
        done = shell("send", agent, "--messages", "-", stdin=endless)
    assert (done.code, str(prompts.MESSAGES_LIMIT) in done.err) == (2, True)
    long = shell.cwd / "long"
    long.write_bytes(b"x" * (prompts.PROMPT_LIMIT + 1))
    with long.open("rb") as stdin:
        done = shell("send", agent, *words, stdin=stdin)
    assert (done.code, str(prompts.PROMPT_LIMIT) in done.err) == (2, True)
    assert prompts_of(shell, agent) == []


def test_the_longest_prompt_can_be_kept_whatever_its_characters_are(shell: Any) -> None:
    """A control character is six bytes in a log."""
    agent = shell.new()
    text = b"\x01" * prompts.PROMPT_LIMIT
    shell.ok("queue", agent, stdin=text)
    assert [len(text) for text in prompts_of(shell, agent)] == [prompts.PROMPT_LIMIT]


def test_input_that_is_no_text_is_refused(shell: Any) -> None:
    """An image, piped in: nothing is sent of it, and nothing without it."""
    agent = shell.new()
    with piped(b"\x89PNG") as stdin:
        done = shell("send", agent, "what is this?", stdin=stdin)
    assert (done.code, "not UTF-8" in done.err) == (2, True)
    assert prompts_of(shell, agent) == []
