"""The lower rows of the terminal: what is going on, what waits, the line that is typed, the state.

What has happened is printed above them and belongs to the terminal's own scrollback; nothing takes
the whole screen. All text comes with control characters as escapes, but for the colours that this
program adds to printed lines.
"""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput, Processor, Transformation
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from agentsdir.cli.cells import cut
from agentsdir.cli.chat.pastes import Pastes, PastingInput
from agentsdir.cli.output import escape_controls, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import TextIO

    from prompt_toolkit.completion import Completer
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding.key_processor import KeyPress, KeyPressEvent
    from prompt_toolkit.layout.processors import TransformationInput

READING_TIME = 0.5
"""Seconds in which a person cannot have read a question: keys of that time do not answer it."""
TWICE = 2.0
"""Seconds in which a second Ctrl-C leaves."""
_PRINT_INTERVAL = 0.05
_SPIN_INTERVAL = 0.25
_MAX_WIDTH = 1000
"""Columns; a terminal that says more is not believed."""
_INPUT_ROWS = 12
_MENU_ROWS = 6
_ROWS_FOR_ALL = 4
"""A lower terminal has the line that is typed, and the state."""
_STYLE = Style.from_dict(
    {
        "status": "ansibrightblack",
        "queued": "ansibrightblack italic",
        "question": "bold",
        "hint": "ansiyellow",
        "menu": "ansibrightblack",
        "menu-chosen": "reverse",
        "prompt": "bold ansicyan",
    }
)


class Handler(Protocol):
    """What the screen tells of, and asks; the conversation implements it."""

    def submitted(self, text: str) -> None:
        """Take a line on which Enter was pressed."""

    def interrupted(self) -> bool:
        """Take Ctrl-C; return whether there was a turn to interrupt."""

    def may_leave(self) -> str:
        """Return why leaving should be confirmed by a second key, or nothing."""

    def unfold(self) -> None:
        """Print the last tool call whole."""

    def live(self, columns: int) -> list[str]:
        """Return the rows of what goes on now."""

    def waiting(self, columns: int) -> list[str]:
        """Return the rows of prompts that wait."""

    def status(self, columns: int) -> str:
        """Return the row of the agent's state."""

    def question(self, columns: int, rows: int) -> list[str]:
        """Return the rows of the question that waits for an answer, if there is one."""

    def answered(self, key: str) -> bool:
        """Take a key as an answer; return whether it is one."""

    def gave_reason(self, text: str | None) -> None:
        """Take the reason of a no; None where the person went back to the question."""


class _Visible(Processor):
    """Shows characters that would reorder the line, one for one."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        return Transformation(
            [
                (piece[0], "".join(map(_visible, piece[1])), *piece[2:])
                for piece in transformation_input.fragments
            ]
        )


def _visible(character: str) -> str:
    if character < "\x7f" or escape_controls(character) == character:
        return character
    return "·"


class Screen:
    """The rows at the bottom of a terminal, and the keys.

    Args:
        variables: the environment's, which tell what terminal it is.
    """

    def __init__(
        self,
        stdout: TextIO,
        handler: Handler,
        history: History,
        completer: Completer,
        *,
        variables: Mapping[str, str],
    ) -> None:
        self._handler = handler
        self._variables = variables
        self._pastes = Pastes()
        self._printed: list[str] = []
        self._printing: asyncio.TimerHandle | None = None
        self._hint = ""
        self._hint_until = 0.0
        self._last_interrupt = 0.0
        self._last_leave = 0.0
        self._last_key = 0.0
        self._question_since: float | None = None
        self._reason_for: Document | None = None
        self._turned_to_question = False
        # Terminals that are known to cut their lines; all others wrap them anew.
        self._reflows = not {"XTERM_VERSION", "STY"} & variables.keys()
        self._buffer = Buffer(
            multiline=True,
            history=history,
            completer=ThreadedCompleter(completer),
            complete_while_typing=Condition(self._completes),
            tempfile_suffix=".md",
            enable_history_search=False,
        )
        output = Vt100_Output.from_pty(stdout, term=variables.get("TERM"))
        output.enable_cpr = False  # a terminal that gives no answer would delay the first row
        self.app: Application[None] = Application(
            layout=Layout(self._rows(), focused_element=self._buffer),
            key_bindings=self._keys(),
            style=_STYLE,
            output=output,
            input=PastingInput(sys.stdin),
            erase_when_done=True,
            enable_page_navigation_bindings=False,
            before_render=self._erase_if_resized,
            min_redraw_interval=_PRINT_INTERVAL,
        )
        # Escape is a key of its own, and the beginning of others.
        self.app.ttimeoutlen = 0.1
        self.app.timeoutlen = 0.5
        renderer: Any = self.app.renderer
        self._erase_below, renderer.erase = renderer.erase, self._erase

    # What is shown.

    @property
    def columns(self) -> int:
        """How wide lines may be."""
        return max(1, min(self.app.output.get_size().columns, _MAX_WIDTH))

    @property
    def rows(self) -> int:
        """How high the terminal is."""
        return max(1, self.app.output.get_size().rows)

    def bell(self) -> None:
        """Ring, for a person who looks elsewhere."""
        self.app.output.bell()

    def print(self, *lines: str) -> None:
        """Print lines above the rows, soon."""
        self._printed += lines
        if self._printing is None:
            loop = asyncio.get_running_loop()
            self._printing = loop.call_later(_PRINT_INTERVAL, self.flush)

    def flush(self) -> None:
        """Print what waits to be printed, now."""
        if self._printing is not None:
            self._printing.cancel()
            self._printing = None
        if not self._printed or self.app._running_in_terminal:
            return
        lines, self._printed = self._printed, []
        renderer, output = self.app.renderer, self.app.output
        self._erase(leave_alternate_screen=False)
        # Lines end in CR LF: the terminal is in raw mode.
        output.write_raw("".join(f"{line}\r\n" for line in "\n".join(lines).split("\n")))
        if self.app.is_running:
            renderer.render(self.app, self.app.layout)
        else:
            output.flush()

    def hint(self, text: str, seconds: float = 4.0) -> None:
        """Show a sentence in place of the status for some seconds."""
        self._hint = text
        self._hint_until = time.monotonic() + seconds
        self.app.invalidate()

    def refresh(self) -> None:
        """Draw the rows again, soon."""
        if self._handler.question(self.columns, self._question_rows()):
            if self._question_since is None:
                self._question_since = time.monotonic()
        else:
            self._question_since = None
            self._turned_to_question = False
        self.app.invalidate()

    @property
    def is_handed_over(self) -> bool:
        """Whether another program has the terminal."""
        return self.app._running_in_terminal

    @asynccontextmanager
    async def handed_over(self) -> AsyncIterator[None]:
        """Let another program have the terminal meanwhile."""
        self.flush()
        async with in_terminal():
            yield
        self.flush()

    async def run(self, started: Callable[[], None]) -> None:
        """Show the rows until `leave` is called."""
        spinning = asyncio.ensure_future(self._spin())
        loop = asyncio.get_running_loop()
        try:
            with self.app.input.raw_mode():
                self._take_early_keys()
                loop.add_signal_handler(signal.SIGCONT, self._continue)
                await self.app.run_async(pre_run=started, set_exception_handler=False)
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            spinning.cancel()
            with suppress(asyncio.CancelledError):
                await spinning

    def _take_early_keys(self) -> None:
        """Take what was typed before each key came by itself, when Enter was a line feed."""
        descriptor = self.app.input.fileno()
        typed = b""
        while select.select([descriptor], [], [], 0)[0] and (read := os.read(descriptor, 65536)):
            typed += read
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(typed.decode(errors="replace").replace("\n", "\r"))
        parser.flush()
        store_typeahead(self.app.input, keys)

    def _continue(self) -> None:
        """Set the terminal up again after a stop: the shell has set it up for itself."""
        if not self.is_handed_over:
            self.app.input.raw_mode().__enter__()  # the one around `run` ends it
            self.app.renderer.reset()
            self.app.invalidate()

    def leave(self) -> None:
        """End `run`."""
        if self.app.is_running and self.app.future is not None and not self.app.future.done():
            self.flush()
            self.app.exit()

    async def _spin(self) -> None:
        """Draw again while something goes on: seconds pass, and hints end."""
        while True:
            await asyncio.sleep(_SPIN_INTERVAL)
            if self._hint or self._question_since or self._handler.live(self.columns):
                self.refresh()

    # The rows.

    def _rows(self) -> HSplit:
        def rows(style: str, get: Callable[[], list[str]]) -> ConditionalContainer:
            # The text has the style, not the window, which would fill the row with blanks of it.
            control = FormattedTextControl(lambda: [(style, "\n".join(get()))], focusable=False)
            window = Window(control, dont_extend_height=True, wrap_lines=False)
            is_there = Condition(lambda: self.rows >= _ROWS_FOR_ALL and bool(get()))
            return ConditionalContainer(window, is_there)

        self._input = Window(
            BufferControl(
                self._buffer,
                input_processors=[_Visible(), BeforeInput(self._prompt, style="class:prompt")],
            ),
            height=self._input_height,
            wrap_lines=True,
            dont_extend_height=True,
        )
        status = Window(
            FormattedTextControl(self._status), height=1, dont_extend_height=True, wrap_lines=False
        )
        return HSplit(
            [
                rows("", lambda: self._handler.live(self.columns)),
                rows("class:question", self._question_lines),
                rows("class:queued", lambda: self._handler.waiting(self.columns)),
                self._input,
                ConditionalContainer(
                    Window(
                        FormattedTextControl(self._menu),
                        height=Dimension(max=_MENU_ROWS),
                        dont_extend_height=True,
                    ),
                    Condition(lambda: self._buffer.complete_state is not None),
                ),
                ConditionalContainer(status, Condition(lambda: self.rows > 1)),
            ]
        )

    def _prompt(self) -> StyleAndTextTuples:
        return [("", "reason> " if self._reason_for is not None else "> ")]

    def _input_height(self) -> Dimension:
        return Dimension(min=1, max=max(1, min(_INPUT_ROWS, self.rows // 2)))

    def _question_rows(self) -> int:
        return max(3, self.rows - 8)

    def _question_lines(self) -> list[str]:
        return self._handler.question(self.columns, self._question_rows())

    def _status(self) -> StyleAndTextTuples:
        if self._hint and time.monotonic() < self._hint_until:
            return [("class:hint", cut(self._hint, self.columns - 1))]
        self._hint = ""
        style, text = "class:status", self._handler.status(self.columns)
        is_asked = self._question_since is not None and self._reason_for is None
        if is_asked and self._buffer.text and not self._turned_to_question:
            style, text = "class:hint", "Tab answers the question; your text stays"
        return [(style, cut(text, self.columns - 1))]

    def _menu(self) -> StyleAndTextTuples:
        state = self._buffer.complete_state
        if state is None:
            return []
        chosen = state.complete_index
        first = max(0, (chosen or 0) - _MENU_ROWS + 1)
        shown: StyleAndTextTuples = []
        for at, one in enumerate(state.completions[first : first + _MENU_ROWS], first):
            style = "class:menu-chosen" if at == chosen else "class:menu"
            text = cut(f"  {one.display_text}  {one.display_meta_text}".rstrip(), self.columns - 1)
            shown += [(style, text), ("", "\n")]
        return shown[:-1]

    def _completes(self) -> bool:
        return self._reason_for is None and self._question_since is None

    # The keys.

    def _answers(self) -> bool:
        """Whether keys are an answer to the question, and not text."""
        since = self._question_since
        if since is None or self._reason_for is not None:
            return False
        quiet = time.monotonic() - max(since, self._last_key) >= READING_TIME
        return self._turned_to_question or (quiet and not self._buffer.text)

    def _is_escape_an_interrupt(self) -> bool:
        return not self._buffer.text and self._reason_for is None

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        answering = Condition(self._answers)
        questioned = Condition(lambda: self._question_since is not None and not self._reason_for)
        giving_reason = Condition(lambda: self._reason_for is not None)
        completing = Condition(lambda: self._buffer.complete_state is not None)

        @keys.add(Keys.Any)
        def _type(event: KeyPressEvent) -> None:
            self._last_key = time.monotonic()
            get_by_name("self-insert").handler(event)

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            del event
            self._last_key = time.monotonic()
            self._submit()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("tab", filter=~completing)
        def _complete(event: KeyPressEvent) -> None:
            event.current_buffer.start_completion(select_first=False, insert_common_part=True)

        @keys.add("tab", filter=completing)
        @keys.add("down", filter=completing)
        def _next(event: KeyPressEvent) -> None:
            event.current_buffer.complete_next()

        @keys.add("s-tab", filter=completing)
        @keys.add("up", filter=completing)
        def _previous(event: KeyPressEvent) -> None:
            event.current_buffer.complete_previous()

        @keys.add(Keys.BracketedPaste)
        def _paste(event: KeyPressEvent) -> None:
            self._last_key = time.monotonic()
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.folded(text))

        @keys.add("c-c")
        # While another program has the terminal, its Ctrl-C is that program's.
        @keys.add("<sigint>", filter=Condition(lambda: not self.is_handed_over))
        def _interrupt(event: KeyPressEvent) -> None:
            del event
            self._interrupt()

        @keys.add("escape", filter=Condition(self._is_escape_an_interrupt))
        def _escape(event: KeyPressEvent) -> None:
            del event
            if self._handler.interrupted():
                self.hint("interrupting the turn")

        @keys.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def _leave(event: KeyPressEvent) -> None:
            del event
            self._leave()

        @keys.add("c-o")
        def _unfold(event: KeyPressEvent) -> None:
            del event
            self._handler.unfold()

        @keys.add("c-l")
        def _clear(event: KeyPressEvent) -> None:
            event.app.renderer.clear()

        @keys.add("c-x", "c-e")
        async def _edit(event: KeyPressEvent) -> None:
            del event
            try:
                await self._edit()
            except (OSError, ValueError) as error:  # also of what is no UTF-8
                self.hint(f"the line is as it was: {one_line(str(error))}")

        @keys.add("c-z")
        def _suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        # The later of two that fit is taken: these come before all others.
        @keys.add("tab", filter=questioned & ~answering)
        def _turn_to_question(event: KeyPressEvent) -> None:
            del event
            self._turned_to_question = True
            self.app.invalidate()

        @keys.add(Keys.Any, filter=answering)
        @keys.add("enter", filter=answering)
        def _answer(event: KeyPressEvent) -> None:
            self._last_key = time.monotonic()
            if event.data == "\t" or event.key_sequence[0].key == "enter":
                self._turned_to_question = False
            elif not self._handler.answered(event.data):
                self.hint("that is no answer; Tab goes back to the line")
            self.refresh()

        @keys.add("tab", filter=answering)
        def _back_to_line(event: KeyPressEvent) -> None:
            del event
            self._turned_to_question = False
            self.refresh()

        @keys.add(Keys.BracketedPaste, filter=answering)
        def _no_answer(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._pastes.folded(event.data))
            self._last_key = time.monotonic()
            self._turned_to_question = False

        @keys.add("escape", filter=giving_reason, eager=True)
        @keys.add("c-c", filter=giving_reason)
        @keys.add("c-d", filter=giving_reason)
        def _no_reason(event: KeyPressEvent) -> None:
            del event
            self._end_reason()
            self._handler.gave_reason(None)

        return keys

    async def _edit(self) -> None:
        """Let the person edit the line in their editor; one that fails changes nothing.

        Raises `OSError` and `ValueError` for an editor that does not start or leaves no text.
        """
        text = self._pastes.unfolded(self._buffer.text)
        with TemporaryDirectory(prefix="agentsdir-") as folder:
            path = Path(folder, "prompt.md")
            path.write_text(text, encoding="utf-8")
            async with self.handed_over():
                process = await asyncio.create_subprocess_exec(*self._editor, str(path))
                code = await process.wait()
            if code:
                raise OSError(f"{self._editor[0]} has failed (exit code {code})")
            edited = path.read_text(encoding="utf-8").removesuffix("\n")
        self._buffer.document = Document(edited, len(edited))

    @property
    def _editor(self) -> list[str]:
        chosen = self._variables.get("VISUAL") or self._variables.get("EDITOR") or "vi"
        return shlex.split(chosen) or ["vi"]

    def ask_reason(self) -> None:
        """Have the next line be a reason; what is typed so far comes back afterwards."""
        self._reason_for = self._buffer.document
        self._buffer.document = Document()

    def _end_reason(self) -> None:
        if self._reason_for is not None:
            self._buffer.document = self._reason_for
            self._reason_for = None
            self._turned_to_question = False

    def _submit(self) -> None:
        buffer = self._buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None  # it is in the line already
            return
        buffer.complete_state = None
        before = buffer.document.text_before_cursor
        if len(before) - len(before.rstrip("\\")) == 1:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if self._reason_for is not None:
            reason = self._pastes.unfolded(buffer.text)
            self._end_reason()
            self._handler.gave_reason(reason)
            return
        line = self._pastes.unfolded(buffer.text)
        if line.strip():
            # Whole: the words for a paste mean nothing in another conversation.
            buffer.history.append_string(line)
        buffer.reset()
        self._handler.submitted(line)

    def _interrupt(self) -> None:
        now = time.monotonic()
        again = now - self._last_interrupt < TWICE
        self._last_interrupt = now
        if again:
            self.leave()
        elif self._handler.interrupted():
            self.hint("interrupting the turn; Ctrl-C again leaves", TWICE)
        elif self._buffer.text:
            self._buffer.reset()
            self.hint("the line is gone; Ctrl-C again leaves", TWICE)
        else:
            self.hint("Ctrl-C again, or Ctrl-D, leaves", TWICE)

    def _leave(self) -> None:
        now = time.monotonic()
        why = self._handler.may_leave()
        if why and now - self._last_leave > TWICE:
            self._last_leave = now
            self.hint(f"{why}; Ctrl-D again leaves", TWICE)
        else:
            self.leave()

    # Erasing.

    def _erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase the rows, where the terminal has them: it may have wrapped them anew.

        Row by row, from below: terminals keep in their scrollback what is erased from the first row
        of the screen on.

        Args:
            leave_alternate_screen: as the renderer's own has it; False where the rows are drawn
                again at once.
        """
        renderer: Any = self.app.renderer
        drawn, cursor = renderer.last_rendered_screen, renderer._cursor_pos
        output = self.app.output
        if drawn is not None:
            columns = self.app.output.get_size().columns if self._reflows else _MAX_WIDTH
            heights = [_wrapped(drawn, row, columns) for row in range(drawn.height)]
            above = sum(heights[: cursor.y]) + cursor.x // columns
            output.write_raw("\r")
            output.cursor_down(sum(heights) - 1 - above)
            output.write_raw("\x1b[2K" + "\x1b[A\x1b[2K" * (sum(heights) - 1))
            renderer._cursor_pos = type(cursor)(0, 0)
        if not leave_alternate_screen:
            # Else the renderer has the terminal set no marks around a paste until the rows are
            # there, and each line of one that comes meanwhile is sent as a prompt.
            renderer._bracketed_paste_enabled = False
        self._erase_below(leave_alternate_screen)

    def _erase_if_resized(self, _app: Any) -> None:
        """Erase the rows before they are drawn for another size: its signal may come later."""
        drawn_for = self.app.renderer._last_size
        if drawn_for is not None and drawn_for != self.app.output.get_size():
            self._erase(leave_alternate_screen=False)


def _wrapped(screen: Any, row: int, columns: int) -> int:
    """Return on how many rows a terminal of some columns has a row that was drawn."""
    used = [at for at, cell in screen.data_buffer[row].items() if cell.char != " "]
    return max(1, -(-(max(used, default=-1) + 1) // columns))
