"""What `send`, `queue` and `spawn` print: the answer of a turn, or the id of a queued message."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.cli.answer_text import AnswerText
from agentsdir.cli.output import escape_controls, frame_of, print_document, print_json, print_text
from agentsdir.engine.dispatcher import WaitLimits
from agentsdir.engine.notices import is_spawned_block
from agentsdir.engine.spawned_events import SpawnedEvents
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from agentsdir.cli.answer_text import AnswerPiece
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.turn_screen import TurnScreen
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.store.layout import AgentPaths


class RunOptions(NamedTuple):
    """How a turn is run and printed; the fields are options of `send` and `spawn`.

    `wait` and `timeout` are in seconds; a `wait` of None sets no limit, and a `timeout` of 0.
    """

    events: bool = False
    record: bool = False
    permission_mode: str = ""
    timeout: float = 0
    wait: float | None = None
    alone: bool = False
    as_json: bool = False
    quiet: bool = False
    children: bool = False

    def wait_limits(self, env: Environment) -> WaitLimits:
        """Return how long to wait for a turn and for a slot: without `--wait`, for ever."""
        if self.wait is None:
            # The slots may be held by turns that wait for the very hook that runs this.
            return WaitLimits(locks.FOREVER, 0 if env.hook_of else locks.FOREVER)
        return WaitLimits(self.wait, self.wait)


class AnswerPrinter:
    """Prints a turn while it runs: the text of the main conversation's answer, or all events.

    A closed pipe or a full disk at stdout does not end the turn. It is recorded to its end, and
    `finish` raises the error.

    Args:
        events: print each event as a line of JSON.
        silent: print nothing.
    """

    def __init__(self, env: Environment, *, events: bool, silent: bool) -> None:
        self._env = env
        self._events = events
        self._silent = silent
        self._text = AnswerText()
        self.has_printed = False
        # On a terminal, lines are ended so that a note on stderr begins a new one.
        self._ends_lines = env.stdout.isatty()
        self._is_in_line = False
        self._failure: OSError | None = None

    @property
    def is_in_line(self) -> bool:
        """Whether the terminal shows a line of the answer that is not complete."""
        return self._ends_lines and self._is_in_line

    def take(self, event: StreamEvent) -> None:
        """Print what an event adds."""
        if self._silent or self._failure:
            return
        try:
            if self._events:
                print_json(self._env, event)
            elif piece := self._text.take(event):
                self._write(piece)
            self._env.stdout.flush()
        except OSError as error:
            self._failure = error

    def _write(self, piece: AnswerPiece) -> None:
        if piece.begins and self.has_printed:
            self._env.stdout.write("\n\n" if self._is_in_line else "\n")
        if piece.text:
            self.has_printed = self._is_in_line = True
            self._env.stdout.write(self._for_reader(piece.text))
        if piece.ends and self._ends_lines:
            self._end_line()

    def _for_reader(self, text: str) -> str:
        if not self._env.stdout.isatty():
            return text
        return escape_controls(text)

    def end_line(self) -> None:
        """End a line of the answer on a terminal, so that another text can follow."""
        if self._ends_lines:
            self.break_off()

    def break_off(self) -> None:
        """End the line of an answer that was cut off."""
        if not self._failure:
            with suppress(OSError):
                self._end_line()
                self._env.stdout.flush()

    def _end_line(self) -> None:
        if self._is_in_line:
            self._env.stdout.write("\n")
            self._is_in_line = False

    def finish(self, response: str) -> None:
        """End the output. Raises the `OSError` of an earlier write, if there was one."""
        if self._failure is not None:
            raise self._failure
        if self._events:
            return
        if not self.has_printed:
            # If another process ran the turn, the answer comes from the log.
            self._env.stdout.write(self._for_reader(response))
            self._is_in_line = True
        self._end_line()


def _is_watched(env: Environment) -> bool:
    """Tell whether a person sees standard error, and no program reads standard output.

    A program behind a pipe, such as a pager, may use the terminal itself.
    """
    if not env.stderr.isatty():
        return False
    if env.stdout.isatty():
        return True
    try:
        mode = os.fstat(env.stdout.fileno()).st_mode
    except OSError:  # it has no descriptor
        return False
    return stat.S_ISREG(mode) or stat.S_ISCHR(mode)


def _screen(env: Environment, answer: AnswerPrinter) -> TurnScreen:
    from agentsdir.cli.turn_screen import TurnScreen  # a pipe needs none of it

    return TurnScreen(env, answer)


class TurnPrinter:
    """Prints the answer of a turn while it runs; where the turn is cut off, ends the line.

    For a person at a terminal it shows the work, too.
    """

    def __init__(self, env: Environment, options: RunOptions) -> None:
        self._env = env
        self._options = options
        self._framed = bool(frame_of(env))
        self._printer = AnswerPrinter(
            env,
            events=options.events or self._framed,
            silent=options.as_json and not self._framed,
        )
        shown = not (options.events or options.as_json or options.quiet) and _is_watched(env)
        self._screen = _screen(env, self._printer) if shown else None
        self.turn_options = TurnOptions(
            self._printer.take, options.record, options.permission_mode, options.timeout
        )
        self._spawned: SpawnedEvents | None = None
        if options.events or self._framed:
            self.turn_options = self.turn_options._replace(
                on_event=self._take, on_others=self._take_spawned
            )
        if self._screen is not None:
            self.turn_options = self.turn_options._replace(
                on_event=self._screen.take,
                on_tick=self._screen.tick,
                on_wait=self._screen.wait,
                on_end=self._screen.end_turn,
            )

    def __enter__(self) -> TurnPrinter:
        if self._screen is not None:
            self._env.status_line = self._screen.status
            self._env.on_asked = self._screen.leave_out
        return self

    def __exit__(self, kind: Any, *_rest: object) -> None:
        if kind is not None:
            self._printer.break_off()
        if self._screen is not None:
            self._screen.end_turn()
            self._env.status_line = self._env.on_asked = None

    def watch(self, paths: AgentPaths) -> None:
        """Print the turns of an agent, named by `paths`.

        Where events are printed, those of the agents that it spawns from now on are printed, too.
        Raises what `read_agent` raises.
        """
        if self._options.events or self._framed:
            self._spawned = SpawnedEvents(self._env.layout, paths, children=self._options.children)
        if self._screen is not None:
            self._screen.folder = read_agent(paths).state.cwd

    def _take(self, event: StreamEvent) -> None:
        """Print an event, after those of spawned agents that were logged before it."""
        if event["type"] != "text_delta":
            self._take_spawned()
        if not is_spawned_block(event.get("block", {})):  # in the log of another process's turn
            self._printer.take(event)

    def _take_spawned(self) -> None:
        if self._spawned is not None:
            for event in self._spawned.poll():
                self._printer.take(event)

    def finish(self, done: list[TurnResult], services: Services) -> None:
        """Print the end of the answer, or with `--json` the results."""
        self._take_spawned()
        if self._screen is not None:
            self._screen.end_turn(done[-1])
        if self._framed or not self._options.as_json:
            self._printer.finish(done[-1].response)
        if not self._options.as_json:
            return
        durability = services.disk.durability
        print_one = print_document if len(done) == 1 else print_json
        for result in done:
            print_one(self._env, {**result.as_json(), "durability": durability})


def print_message(
    env: Environment, services: Services, paths: AgentPaths, message_id: str, *, as_json: bool
) -> None:
    """Print the id of a message that waits in an inbox now."""
    if as_json:
        durability = services.disk.durability
        document = {"type": "message", "agentId": paths.id, "messageId": message_id}
        print_json(env, {**document, "durability": durability})
    else:
        print_text(env, message_id + "\n")
