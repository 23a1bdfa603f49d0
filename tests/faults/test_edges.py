"""Where a command meets the edge of what it is given: output, start-up, memory, its lock."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from commands import until
from console import Console
from machine import interrupt, need
from mounted import tmpfs
from test_signals import first_call_of_ours


@pytest.mark.parametrize("options", [["--saved"], ["--runtime"]])
def test_output_that_only_a_part_of_fits_is_not_exit_0_without_buffers_either(
    tmp_path: Path, options: list[str]
) -> None:
    """PYTHONUNBUFFERED is set in most containers."""
    need("root", "tmpfs")
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "-", stdin="word " * 20_000)
    unbuffered = {**console.environment(), "PYTHONUNBUFFERED": "1"}
    with tmpfs(tmp_path / "disk", 64 * 1024) as disk, (disk / "out").open("wb") as out:
        done = console.process("inspect", agent, *options, stdout=out, env=unbuffered)
    assert (done.code, done.quiet) == (1, True), done
    assert "No space left" in done.err


def test_an_interrupt_while_the_program_starts_ends_it_quietly(tmp_path: Path) -> None:
    """From the first thing that is imported for a command to the last."""
    need("strace")
    console = Console(tmp_path / "root", tmp_path)
    console.new()
    first, last = first_call_of_ours(console, tmp_path)
    for at in range(first + 1, last + 1, 9):
        done = console.process("list", before=interrupt(f"openat:signal=INT:when={at}"))
        assert (done.code, done.out, done.err) == (130, "", ""), (at, done)


def test_a_turn_whose_lock_file_is_taken_away_writes_nothing_more(tmp_path: Path) -> None:
    """Another one may have ended it, and be at work under the new file."""
    console = Console(tmp_path / "root", tmp_path)
    talk = tmp_path / "talk.jsonl"
    talk.write_text('{"type":"sleep","seconds":1.5}\n')
    agent = console.new("--provider", "script", "--option", f"file={talk}")
    with console.start("send", agent, "one") as first:
        until(lambda: b"turn.start" in console.log(agent).read_bytes(), "the turn")
        (console.folder(agent) / ".turn").unlink()
        console("send", agent, "two", "--wait", "0")
        _, complaint = first.communicate(timeout=60)
    assert first.returncode == 11, complaint
    assert console.problems() == []


def test_a_line_of_many_small_values_does_not_exhaust_memory(tmp_path: Path) -> None:
    """64 MiB of text may be gibibytes of objects."""
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "hello")
    with console.log(agent).open("ab") as stream:
        stream.write(b"[" + b"[]," * 20_000_000 + b"0]\n")
    cap = 512 * 1024 * 1024
    for words, code in ((["inspect", agent], 3), (["send", agent, "again"], 0)):
        done = console.process(
            *words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
        )
        assert "Traceback" not in done.err, done.err[-500:]
        assert done.code == code, done


def test_a_recorded_transcript_with_a_long_first_line_is_known(tmp_path: Path) -> None:
    """A prompt of more than 64 KiB is the first line of what `echo` keeps."""
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "-", stdin="word " * 20_000)
    (stored,) = (console.folder(agent) / "transcripts").glob("*.jsonl")
    assert len(console.ok("parse", str(stored)).splitlines()) == 2


def test_version_whose_output_no_process_reads(tmp_path: Path) -> None:
    """As every other verb."""
    console = Console(tmp_path / "root", tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    done = console.process("--version", stdout=writing)
    os.close(writing)
    assert (done.code, done.err) == (141, "")
    with Path("/dev/full").open("wb") as full:
        done = console.process("--version", stdout=full)
    assert (done.code, "No space left" in done.err) == (1, True)
