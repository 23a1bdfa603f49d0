"""Whether a session is open in a client elsewhere, as far as command lines say it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clients import ID, OTHER

from agentsdir.adapters.gemini.opened import open_sessions

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs a /proc")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Return a way to start a program with words and variables; it says when it runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **variables: str) -> int:
        program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *words]
        environment = {"HOME": str(tmp_path), **variables}
        process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.communicate()


WORDS = {
    "resumed": ("--resume", ID),
    "resumed in one word": (f"--resume={ID}",),
    "resumed for short": ("-p", "hi", "-r", ID),
    "begun": ("--session-id", ID, "--yolo"),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_client_that_was_given_the_id_has_the_session_open(
    tmp_path: Path, client: Callable[..., int], words: tuple[str, ...]
) -> None:
    """As long as it lives."""
    pid = client(*words)
    found = dict(open_sessions(tmp_path / ".gemini")).get(ID)
    assert found is not None
    assert found.pid == pid


OTHERS = {
    "another session": ("--resume", OTHER),
    "the last one": ("--resume", "latest"),
    "a word in a prompt": ("-p", f"what is --resume {ID}"),
    "another option": ("--delete-session", ID),
    "the id alone": (ID,),
}


@pytest.mark.parametrize("words", OTHERS.values(), ids=OTHERS)
def test_others_have_not(
    tmp_path: Path, client: Callable[..., int], words: tuple[str, ...]
) -> None:
    """They may all the same: what no command line says is not seen."""
    client(*words)
    assert dict(open_sessions(tmp_path / ".gemini")).get(ID) is None


def test_a_copy_of_the_session_in_another_store_is_another_session(
    tmp_path: Path, client: Callable[..., int]
) -> None:
    """The client's own variable counts, and links are no other place."""
    client("--resume", ID, GEMINI_CLI_HOME="/elsewhere")
    assert dict(open_sessions(tmp_path / ".gemini")).get(ID) is None
    (tmp_path / "link").symlink_to(tmp_path)
    client("--resume", ID, GEMINI_CLI_HOME=str(tmp_path / "link"), HOME="/elsewhere")
    assert dict(open_sessions(tmp_path / ".gemini")).get(ID) is not None


def test_one_whose_home_is_unknown_has_it_open(tmp_path: Path, client: Callable[..., int]) -> None:
    """Better to refuse than to lose answers."""
    client("--resume", ID, HOME="")
    assert dict(open_sessions(tmp_path / ".gemini")).get(ID) is not None
