"""Logs with lines that no reader can hold: reported, passed over, and written on."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest
from console import Console, Done
from machine import lacking
from mounted import in_memory

MEBIBYTE = 1024 * 1024
HOLE = 10 * 1024 * MEBIBYTE
RECORD = (
    b'{"seq":10,"ts":"2026-01-02T03:04:05.678900Z","event":"x",'
    b'"session_id":"00000001000040008000000000000001","prev":"0000000000000000","data":{"x":"'
)
# What a line of a log may be that a reader cannot take: whole, with its LF; and what it is called.
LINES = {
    "a NUL more than the cap": (bytes(64 * MEBIBYTE) + b"\n", "oversize"),
    "NULs up to the cap": (bytes(64 * MEBIBYTE - 1) + b"\n", "nul-run"),
    "a long record that is cut": (RECORD + b"x" * (63 * MEBIBYTE) + b"\n", "bad-json"),
    "a hundred thousand brackets": (b"[" * 100_000 + b"\n", "too-deep"),
    "a million openings": (b'{"a":' * 1_000_000 + b"\n", "too-deep"),
}


@pytest.fixture
def console() -> Iterator[Console]:
    """Return a command line on an agents directory; what is written there is not for keeping."""
    with in_memory() as folder:
        yield Console(folder / "root", folder)


def limited(console: Console, *arguments: str) -> Done:
    """Run one command that may have half a gibibyte of addresses; what it says is words."""
    done = console.process(
        *arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (512 * MEBIBYTE,) * 2),
    )
    assert "Traceback" not in done.err, done.err[-2000:]
    assert "MemoryError" not in done.err
    assert all(len(line) < 1000 for line in done.err.splitlines())
    return done


def reported(console: Console, verbs: dict[str, int], agent: str, finding: str) -> None:
    """Check that verbs exit as they should, and name a finding once if it is damage to them."""
    for verb, code in verbs.items():
        words = verb.split() + ([] if verb in ("list", "validate") else [agent])
        done = limited(console, *words)
        assert done.code == code, (verb, done)
        said = done.out if verb == "validate" else done.err
        named = [line for line in said.splitlines() if f" {finding}: " in line]
        assert len(named) == 1, (verb, done)
        if verb == "replay":
            assert done.out.startswith("> hello\n\nhello\n"), done


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_cannot_be_read_is_named_and_everything_else_is_read(
    console: Console, name: str
) -> None:
    """Bounded memory, the documented exit codes; and the agent goes on."""
    agent = console.new()
    console.ok("send", agent, "hello")
    line, finding = LINES[name]
    log = console.log(agent)
    with log.open("ab") as stream:
        stream.write(line)
    small = len(line) < MEBIBYTE
    # How a verb reads a log does not depend on the line: the dear ones run on the cheap one.
    verbs = {"list": 3, "inspect": 3, "replay": 3, "validate": 1} if small else {"inspect": 3}
    reported(console, verbs, agent, finding)
    sent = limited(console, "send", agent, "again")
    assert (sent.code, sent.out) == (0, "again\n")
    # A complete line was a record once: it is counted as lost, for good.
    verbs = {"inspect": 3, "replay": 3, "restore": 3} if small else {"replay": 3}
    reported(console, verbs, agent, finding)
    assert limited(console, "list").code == 0


def make_hole(console: Console, agent: str) -> None:
    """Make the log ten gibibytes longer without writing a byte."""
    log = console.log(agent)
    size = log.stat().st_size
    try:
        os.truncate(log, size + HOLE)
    except OSError as error:
        lacking(f"a file of {HOLE} bytes cannot be made: {error.strerror}")
    with log.open("rb") as stream:
        try:
            os.lseek(stream.fileno(), size + MEBIBYTE, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
    lacking("this file system does not say where its holes are")


def test_a_log_with_a_hole_of_ten_gibibytes_is_read_and_written_on(console: Console) -> None:
    """As the end of a log, which is an unfinished write; then with records after it."""
    agent = console.new()
    console.ok("send", agent, "hello")
    make_hole(console, agent)
    verbs = {"inspect": 3, "replay": 3, "restore --dry-run": 0}
    reported(console, verbs, agent, "torn-tail")
    sent = limited(console, "send", agent, "again")
    assert (sent.code, sent.out) == (0, "again\n")
    assert console.log(agent).stat().st_size > HOLE
    assert console.replayed(agent) == ["hello", "hello", "again", "again"]
    # The record after it shows that nothing was lost: it was a write that no command acknowledged.
    for words in (["restore"], ["validate"]):
        assert limited(console, *words).code == 0, words


def test_a_log_with_a_hole_between_records_has_lost_what_stood_there(console: Console) -> None:
    """A complete line of ten gibibytes: named by every verb that reads it, and passed over."""
    agent = console.new()
    console.ok("send", agent, "hello")
    make_hole(console, agent)
    with console.log(agent).open("ab") as stream:
        stream.write(b"\n")
    console.ok("send", agent, "again")
    reported(console, {"replay": 3, "restore": 3}, agent, "oversize")
    assert limited(console, "send", agent, "and again").code == 0
