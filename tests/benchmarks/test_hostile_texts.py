"""A text made to be slow to recognise takes about as long as a harmless one of its length."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from agentsdir.adapters.claude.speakers import (
    command_text,
    divide_speech,
    read_notice,
    teammate_notices,
)
from agentsdir.adapters.gemini.speakers import shell_lines, speaker_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.benchmark

REPEATS = 5000
BAR = 100.0  # what is tried again at each tag takes thousands of times as long
TOO_LONG = 20  # seconds: what is tried in 2^5000 ways does not end
NOTICE = "<task-notification><a>1</a></task-notification>"
FILE = "Full transcript available at: a.output"
TEAMMATE = '<teammate-message teammate_id="a">'
SHELL = "I ran the following shell command:\n```sh\n"
PRODUCED = "a\n```\n\nThis produced the following result:\n```\n"
REPEATED = {  # beginning, what is repeated, end
    "blanks below a notice": (NOTICE, " ", "x"),
    "notices": ("", NOTICE, "x"),
    "notices with files": ("", f"{NOTICE}{FILE}", "x"),
    "notices with files, a line each": ("", f"{NOTICE}{FILE}\n", "x"),
    "ends of a file": (f"{NOTICE}{FILE}", " .output", " x"),
    "fields that are open": ("<task-notification>", "<summary>", "</task-notification>"),
    "results that are open": ("<task-notification>", "<result>", "</task-notification>"),
    "teammates that are open": ("", TEAMMATE, ""),
    "names of teammates": ("", '<teammate-message teammate_id="a"', ""),
    "blanks below a teammate": (f"{TEAMMATE}x</teammate-message>", " ", "x"),
    "lines of a hook": ("Stop hook feedback:\n- [a]: b\n", "\n", "x"),
    "brackets of a hook": ("Stop hook feedback:\n- [", "]: ", ""),
    "commands that are open": ("", "<command-name>", ""),
    "outputs that are open": ("", "<bash-stdout>", ""),
    "pasted texts that are open": ("", '<pasted_content id="1">\n', ""),
    "tags of an editor": ("", "<ide_selection>", ""),
    "messages of a channel": ("", '<channel source="a">\n', ""),
    "snapshots": ("<scratchpad>", "</scratchpad><state_snapshot>", "x"),
    "folders": ("- **Workspace Directories:**\n  - a\n", "- **Directory Structure:**\n\n", "x"),
    "steps back": ("System: Potential loop detected. Details: ", ". Please take a step back", ""),
    "shells": ("", f"{SHELL}{PRODUCED}", "x"),
    "ends of a shell": (f"{SHELL}{PRODUCED}", "\n``", ""),
}
ORIGINS: tuple[dict[str, Any], ...] = (
    {},
    {"promptSource": "typed"},
    {"promptSource": "system"},
    {"origin": {"kind": "channel"}},
    {"type": "queue-operation"},
)


def read(text: str) -> None:
    """Ask all that can be asked of the text of a prompt."""
    for origin in ORIGINS:
        divide_speech(origin, [text])
    command_text(text)
    read_notice(text)
    teammate_notices(text)
    speaker_of(text)
    shell_lines(text)


def seconds(work: Callable[[], None]) -> float:
    """Return the least CPU time of three calls; raise TimeoutError if one does not end."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"still at it after {TOO_LONG} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    took = []
    try:
        for _ in range(3):
            signal.alarm(TOO_LONG)
            start = time.process_time()
            work()
            took.append(time.process_time() - start)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return min(took)


@pytest.mark.parametrize("name", REPEATED)
def test_a_hostile_text_is_recognised_about_as_fast_as_a_harmless_one(name: str) -> None:
    """The floor is a text of the same length that begins like a text of the client's."""
    beginning, repeated, end = REPEATED[name]
    hostile = beginning + repeated * REPEATS + end
    harmless = "<task-notification>" + "Hello, agent. " * (len(hostile) // 14)
    assert seconds(lambda: read(hostile)) < BAR * seconds(lambda: read(harmless))
