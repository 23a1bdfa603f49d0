"""Questions at the terminal (docs/configuration.md, "Questions at the terminal").

Input that was typed before the question could be read must not answer it. A terminal keeps such
input and gives it to the next reader, so it is thrown away first.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import termios
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from unicodedata import east_asian_width

from agentsdir.cli.colour import style_of
from agentsdir.cli.output import one_line
from agentsdir.cli.pager import pager_of
from agentsdir.cli.questions import Answer, Keep, Question, call_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.cli.environment import Environment

_T = TypeVar("_T")

READING_TIME = 0.5
"""Seconds in which a person cannot have read a question: input of that time is thrown away."""
_PASTE_GAP = 0.05
"""Seconds: two lines that come within this time were pasted, not typed."""
_POLL_INTERVAL = 0.1
_NOTIFY_AFTER = 1.0
"""Seconds of waiting for another question before the user is notified."""


def confirm(
    terminal: Path, lines: list[str], prompt: str, notify: Callable[[str], None], *, asker: str
) -> bool:
    """Show a yes-or-no question at a terminal, and return whether the answer is yes.

    Arguments and errors of `_ask`; `lines` are the question, each shown as one line, with control
    characters as escapes.
    """

    def decide(_terminal: _Terminal, text: str) -> bool:
        return text.lower() in _YES

    shown = [one_line(line) for line in lines]
    return _ask(terminal, lambda _: shown, prompt, decide, notify, lambda: None, asker=asker)


_YES = ("y", "yes")
_NO = ("", "n", "no")


def ask_at_terminal(
    env: Environment,
    question: Question,
    settled: Callable[[], _T | None],
    take: Callable[[Answer], _T],
) -> _T | None:
    """Ask at the terminal whether a tool may run; None where stderr is none.

    Args:
        settled: called when it is this question's turn; what it returns stands for the answer, and
            nothing is asked. It returns None where the user is to be asked.
        take: called with the answer, before another question has its turn; what it returns is
            returned.

    Raises `OSError` as `confirm` does.
    """
    if not env.stderr.isatty():
        return None
    asking = _ToolQuestion(env, question)

    def decide(terminal: _Terminal, text: str) -> _T | None:
        answer = asking.decide(terminal, text)
        return None if answer is None else take(answer)

    # A note that the question has to wait is not drawn over, either.
    with env.without_status():
        return _ask(
            env.terminal,
            asking.lines,
            asking.prompt,
            decide,
            env.notify,
            settled,
            asker=question.asker,
        )


class _Terminal(NamedTuple):
    """An open terminal, and its size in characters."""

    descriptor: int
    columns: int
    rows: int


def _ask(
    terminal: Path,
    lines: Callable[[_Terminal], Sequence[str]],
    prompt: str,
    decide: Callable[[_Terminal, str], _T | None],
    notify: Callable[[str], None],
    settled: Callable[[], _T | None],
    *,
    asker: str,
) -> _T:
    """Show a question at a terminal, and return what the answer means.

    Only one process asks at a terminal at a time. A process in the background waits until its job
    is in the foreground.

    Args:
        lines: returns the question, in lines that may be written as they are.
        prompt: the text in front of the answer.
        decide: returns what a line means; None where the question has to be asked again.
        notify: called with a sentence when the question has to wait.
        settled: returns what stands for the answer when it is the question's turn, or None.
        asker: the subject of that sentence.

    Raises `OSError` if the terminal cannot be opened, is closed, or cannot be read from because no
    shell can bring this job to the foreground.
    """
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        with _no_stop_signals():
            while True:
                _wait_for_foreground(descriptor, notify, asker)
                with _terminal_lock(descriptor, notify, asker):
                    answer = settled()
                    if answer is None:
                        opened = _Terminal(descriptor, *_size(descriptor))
                        answer = _answer(opened, lines(opened), prompt, decide)
                if answer is not None:
                    return answer
    finally:
        os.close(descriptor)


def _size(descriptor: int) -> tuple[int, int]:
    """Return columns and rows; a terminal that does not know them, or lies, gets usable ones."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return min(max(columns or 80, 20), 1000), min(max(rows or 24, 10), 1000)


class _ToolQuestion:
    """How a question about a tool looks at a terminal, and what the answers to it mean."""

    _KEYS: tuple[tuple[str, Keep, str], ...] = (
        ("t", "turn", "this turn"),
        ("a", "agent", "this agent"),
        ("f", "folder", "this folder"),
    )

    def __init__(self, env: Environment, question: Question) -> None:
        self._env = env
        self._question = question
        self._style = style_of(env, stream=env.stderr)
        self._lines = call_lines(question.input, question.folder)
        self._keys = [key for key in self._KEYS if question.rule and key[1] in question.keeps]
        letters = "".join(f"/{key}" for key, _, _ in self._keys)
        self.prompt = f"Allow? [y/N{letters}/?] "

    def lines(self, terminal: _Terminal) -> list[str]:
        """Return who asks and what for; of a long call, the beginning and the end."""
        wrapped = _wrapped(self._lines, terminal.columns - 2)
        room = max(terminal.rows - 9, 4)
        if len(wrapped) > room:
            left_out = len(wrapped) - room
            head = room - room // 4
            wrapped = [
                *wrapped[:head],
                f"[… {left_out} lines are not shown: v shows them …]",
                *wrapped[len(wrapped) - room // 4 :],
            ]
        style = self._style
        shown = [style(f"  {line}", _STYLES.get(line[:1], "")) for line in wrapped]
        headline = style(self._question.headline, "strong")
        return [headline, *shown, *(style(line, "faint") for line in self._legend())]

    def _legend(self) -> list[str]:
        always = " · ".join(f"{key} {whom}" for key, _, whom in self._keys)
        lines = [f"  always {self._question.always}: {always}"] if always else []
        return ["  y yes · n [REASON] no · v show all · ? help", *lines]

    def decide(self, terminal: _Terminal, text: str) -> Answer | None:
        """Return the answer that a line is. Show what it asks for, and return None, for others."""
        word, _, rest = text.partition(" ")
        word, rest = word.lower(), rest.strip()
        if word in _NO:
            return Answer(allowed=False, reason=rest)
        if rest == "" and word in _YES:
            return Answer(allowed=True)
        for key, keep, _ in self._keys:
            if rest == "" and word == key:
                return Answer(allowed=True, keep=keep)
        if rest == "" and word == "v":
            self._show_all(terminal)
        elif rest == "" and word == "?":
            _write(terminal.descriptor, "".join(f"{line}\n" for line in self._help()))
        else:
            letters = "".join(f", {key}" for key, _, _ in self._keys)
            text = f"That is no answer: y, n, n REASON{letters}, or ? for help.\n"
            _write(terminal.descriptor, text)
        return None

    def _help(self) -> list[str]:
        lines = [
            "  y         yes, this once",
            "  n         no",
            "  n REASON  no, and why, for the model",
        ]
        for key, _, whom in self._keys:
            lines.append(f"  {key}         yes, and always {self._question.always} for {whom}")
        return [*lines, "  v         show all of it"]

    def _show_all(self, terminal: _Terminal) -> None:
        """Show the whole call in the user's pager, or where there is none, on the terminal."""
        text = "".join(f"{one_line(line)}\n" for line in (self._question.headline, *self._lines))
        words = pager_of(self._env)
        if words:
            # Ctrl-C in the pager is the pager's; a program inherits only that one is ignored.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                subprocess.run(
                    words,
                    input=text.encode(errors="replace"),
                    stdout=terminal.descriptor,
                    stderr=terminal.descriptor,
                    env={"LESS": "FRX", **self._env.variables},
                    check=False,
                )
                return
            except OSError as error:
                self._env.notify(f"the pager {words[0]!r} does not start: {error.strerror}")
            finally:
                signal.signal(signal.SIGINT, before)
        _write(terminal.descriptor, text)


_STYLES = {"+": "added", "-": "removed"}
"""The styles of lines of a diff, by their first character."""


def _wrapped(lines: list[str], columns: int) -> list[str]:
    """Return lines cut into pieces that take one row of a terminal each."""
    rows = []
    for line in lines:
        begin = left = 0
        text = one_line(line).replace("\t", "    ")
        for at, character in enumerate(text):
            width = 2 if east_asian_width(character) in "WF" else 1
            left += width
            if left > columns:
                rows.append(text[begin:at])
                begin, left = at, width
        rows.append(text[begin:])
    return rows


@contextmanager
def _no_stop_signals() -> Iterator[None]:
    """Make a read in the background fail: a stopped process would keep its locks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTIN, signal.SIGTTOU))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # not the terminal of this session, which has no job control then
        return True


def _wait_for_foreground(descriptor: int, notify: Callable[[str], None], asker: str) -> None:
    notified = False
    while not _in_foreground(descriptor):
        if os.getsid(os.getppid()) != os.getsid(0):
            raise OSError(0, "this job is in the background, and no shell can bring it back")
        if not notified:
            notify(f"{asker} has a question: bring this job to the foreground (`fg`)")
            notified = True
        time.sleep(_POLL_INTERVAL)


@contextmanager
def _terminal_lock(descriptor: int, notify: Callable[[str], None], asker: str) -> Iterator[None]:
    """Lock the terminal's device, so that no other process asks meanwhile."""
    try:
        lock = os.open(_device(descriptor), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # another user's terminal, as after `su`: nothing there can be locked
        yield
        return
    try:
        notify_at = time.monotonic() + _NOTIFY_AFTER
        while not _try_lock(lock):
            if time.monotonic() >= notify_at:
                _write(descriptor, "\n")  # the open question's prompt has none
                notify(f"{asker} waits with a question: another one is open at this terminal")
                _have_prompt_drawn(descriptor)
                notify_at = float("inf")
            time.sleep(_POLL_INTERVAL)
        yield
    finally:
        os.close(lock)


def _have_prompt_drawn(descriptor: int) -> None:
    """Have the process whose question is open draw its prompt again, below what was written.

    To every other process in the foreground, and to that one where it is stopped, the signal means
    nothing.
    """
    with suppress(OSError):
        os.killpg(os.tcgetpgrp(descriptor), signal.SIGWINCH)


@contextmanager
def _signals_to_draw(descriptor: int) -> Iterator[list[int]]:
    """Yield a list that gets an entry whenever `_have_prompt_drawn` is called elsewhere."""
    came: list[int] = []
    size = _size(descriptor)

    def take(number: int, _frame: object) -> None:
        nonlocal size
        known, size = size, _size(descriptor)
        if size == known:  # else the terminal has a new size
            came.append(number)

    before = signal.signal(signal.SIGWINCH, take)
    try:
        yield came
    finally:
        signal.signal(signal.SIGWINCH, before or signal.SIG_DFL)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _device(descriptor: int) -> str:
    """Return the terminal's own path, since `/dev/tty` names another terminal in each session."""
    for one in (descriptor, 2, 1, 0):
        try:
            name = os.ttyname(one)
        except OSError:
            continue
        if name != "/dev/tty":
            return name
    raise FileNotFoundError(2, "the terminal has no name")


def _answer(
    terminal: _Terminal,
    lines: Sequence[str],
    prompt: str,
    decide: Callable[[_Terminal, str], _T | None],
) -> _T | None:
    """Ask until there is an answer; None if this job is no longer in the foreground."""
    descriptor = terminal.descriptor
    _write(descriptor, "\n" + "".join(f"{line}\n" for line in lines))
    time.sleep(READING_TIME)
    with _signals_to_draw(descriptor) as came:
        while True:
            # Also half a line that has no Enter yet, which the terminal keeps as well.
            termios.tcflush(descriptor, termios.TCIFLUSH)
            came.clear()
            _write(descriptor, prompt)
            line = _read_line(descriptor, came)
            if line is None:
                return None
            if came and not line.endswith((b"\n", b"\r")):
                continue  # a note stands below the prompt, and half a line above it
            if select.select([descriptor], [], [], _PASTE_GAP)[0]:
                _write(descriptor, "Several lines came at once, which is no answer.\n")
                continue
            answer = decide(terminal, line.decode(errors="replace").strip())
            if answer is not None:
                return answer


def _read_line(descriptor: int, came: list[int]) -> bytes | None:
    """Return the next line, or the rest before the end of input; None in the background.

    Args:
        came: the line ends as soon as this has an entry.
    """
    line = b""
    while not line.endswith((b"\n", b"\r")) and not came:
        ready = select.select([descriptor], [], [], _POLL_INTERVAL)[0]
        if not _in_foreground(descriptor):
            return None
        if ready and not came:
            piece = os.read(descriptor, 4096)
            if not piece:
                return line
            line += piece
    return line


def _write(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
