"""What lines with a slash do: commands of the prompt, and any verb of agentsdir."""

from __future__ import annotations

import asyncio
import sys
from textwrap import wrap
from typing import TYPE_CHECKING

from agentsdir.cli.chat.typed import Slash, with_agent
from agentsdir.cli.command_line import COMMANDS
from agentsdir.cli.markdown import markdown
from agentsdir.cli.output import one_line
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentsdir.cli.chat.agents import ChatAgent
    from agentsdir.cli.chat.session import Chat

_PROGRAM = "from agentsdir.cli.main import main; main()"
OWN = {
    "agents": "The agents, and which of them work",
    "new": "Begin with a new agent: /new [NAME] [options of new]",
    "switch": "Go to another agent: /switch AGENT",
    "model": "Show or set the agent's model: /model [NAME]",
    "mode": "Show or set the agent's permission mode: /mode [MODE]",
    "queue": "Prompts that wait: /queue, /queue send, /queue drop N|all",
    "interrupt": "End the turn that runs (Ctrl-C)",
    "fork": "Go on with a copy of the agent",
    "spawn": "Give a task to a subagent: /spawn TASK",
    "unfold": "Show a tool call whole: /unfold [N]; the last one: Ctrl-O",
    "log": "The conversation so far",
    "open": "Go into the agent's own client",
    "permissions": "What agents may do without asking",
    "help": "The commands and the keys",
    "quit": "Leave (Ctrl-D)",
}
"""What commands of the prompt do, in the order of `/help`."""
KEYS = {
    "Enter": "sends; while a turn runs, the prompt is queued",
    "Alt-Enter, Ctrl-J, \\ Enter": "a new line",
    "Ctrl-C": "interrupts the turn, as Esc on an empty line; twice leaves",
    "Ctrl-D": "leaves",
    "Ctrl-O": "shows the last tool call whole",
    "Ctrl-X Ctrl-E": "edits the line in $EDITOR",
    "Ctrl-R": "searches what was typed before",
    "Tab": "completes commands, agents and @files",
}
# These have the terminal to themselves: for a pager, the client, or a question.
_AT_TERMINAL = frozenset({"close", "follow", "log", "open", "permissions", "rm", "trust"})
_REFUSED = frozenset({"chat"})


def offered() -> dict[str, str]:
    """Return what may follow a slash, and what it is for."""
    verbs = {name: text for name, text in COMMANDS.items() if name not in _REFUSED}
    return {**OWN, **{name: text for name, text in verbs.items() if name not in OWN}}


class SlashCommands:
    """Runs the lines that begin with a slash."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._own: dict[str, Callable[[Slash], Awaitable[None]]] = {
            "agents": self._agents,
            "new": self._new,
            "switch": self._switch,
            "model": self._model,
            "mode": self._mode,
            "queue": self._queue,
            "interrupt": self._interrupt,
            "fork": self._fork,
            "spawn": self._spawn,
            "unfold": self._unfold,
            "help": self._help,
            "quit": self._quit,
            "exit": self._quit,
        }

    async def run(self, line: Slash) -> None:
        """Do what a line says. Raises `UsageError` for one that says nothing known."""
        if own := self._own.get(line.name):
            await own(line)
        elif line.name in _REFUSED or line.name not in COMMANDS:
            raise UsageError(
                f"there is no /{line.name}", hint="/help lists commands; //… sends it as a prompt"
            )
        elif line.name in _AT_TERMINAL:
            await self._at_terminal(line.name, self._words(line))
        else:
            # A verb that takes long keeps no prompt from being sent.
            self._chat.do(self._verb(line.name, self._words(line)))

    def _words(self, line: Slash) -> tuple[str, ...]:
        current = self._chat.current
        return with_agent(line.name, line.words, current.id if current else "")

    def _agent(self) -> ChatAgent:
        if self._chat.current is None:
            raise UsageError("there is no agent yet", hint="/new makes one, /switch goes to one")
        return self._chat.current

    async def _verb(self, verb: str, words: tuple[str, ...]) -> None:
        """Have a verb done, and show what it prints for people."""
        outcome = await self._chat.ask_for_people(verb, *words)
        if text := outcome.text.rstrip("\n"):
            self._chat.say(*text.split("\n"))
        for note in outcome.notes:
            self._chat.say_note(note)
        if outcome.exit:
            self._chat.say_failure(outcome.error)
        await self._after()

    async def _after(self) -> None:
        """Look what a verb has changed."""
        await self._chat.look_at_current()
        await self._chat.list_agents()

    async def _at_terminal(self, verb: str, words: tuple[str, ...]) -> None:
        """Run a verb as a program of its own that has the terminal."""
        root = self._chat.env.root
        given = ["--root", root] if root else []
        async with self._chat.screen.handed_over():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _PROGRAM, *given, verb, *words, cwd=self._chat.env.cwd
            )
            await process.wait()
        await self._after()

    # Commands of the prompt.

    async def _agents(self, line: Slash) -> None:
        await self._verb("list", line.words)
        working = [one.label for one in self._chat.agents.values() if one.running is not None]
        if working:
            self._chat.say_note(f"at work here: {', '.join(working)}")

    async def _new(self, line: Slash) -> None:
        words = list(line.words)
        if words and not words[0].startswith("-"):
            words[:1] = ["--name", words[0]]
        await self._chat.make(words)

    async def _switch(self, line: Slash) -> None:
        if len(line.words) != 1:
            raise UsageError("/switch needs one AGENT", hint="/agents lists them")
        await self._chat.go_to(line.words[0])

    async def _model(self, line: Slash) -> None:
        await self._set(line, "model", "model")

    async def _mode(self, line: Slash) -> None:
        await self._set(line, "permission-mode", "permissionMode")

    async def _set(self, line: Slash, key: str, field: str) -> None:
        agent = self._agent()
        if not line.words:
            said = agent.document.get(field)
            self._chat.say_note(f"{agent.label}: {said or 'the default of its provider'}")
        else:
            outcome = await self._chat.ask("set", agent.id, f"{key}={line.rest}")
            if outcome.exit:
                self._chat.say_failure(outcome.error)
                return
            does = self._chat.modes().get(line.rest, "") if key == "permission-mode" else ""
            said = f"{agent.label}: {key} {line.rest}" + (f": {does}" if does else "")
            self._chat.say_note(f"{said}; from the next turn on")
            await self._after()

    async def _queue(self, line: Slash) -> None:
        agent = self._agent()
        what = line.words[0] if line.words else ""
        if what == "drop":
            await self._drop(agent, line.words[1:])
        elif what == "send" and agent.waiting and agent.running is None:
            self._chat.send_next(agent)
        elif what == "send":
            self._chat.say_note("nothing waits" if agent.running is None else "the turn runs still")
        elif what:
            raise UsageError("/queue, /queue send, or /queue drop N|all")
        else:
            lines = [f"{at}  {one_line(one.text[:500])}" for at, one in enumerate(agent.waiting, 1)]
            self._chat.say(*(lines or [self._chat.style("nothing waits", "faint")]))

    async def _drop(self, agent: ChatAgent, words: tuple[str, ...]) -> None:
        waiting = list(agent.waiting)
        try:
            by_number = dict(enumerate(waiting, 1))
            chosen = waiting if words == ("all",) else [by_number[int(words[0])]]
        except (IndexError, KeyError, ValueError):
            raise UsageError("/queue drop N, or /queue drop all") from None
        for one in chosen:
            outcome = await self._chat.ask("queue", agent.id, drop=one.message_id)
            if outcome.exit:
                self._chat.say_failure(outcome.error)
            elif one in agent.waiting:
                agent.waiting.remove(one)
        agent.holds = agent.holds and bool(agent.waiting)

    async def _interrupt(self, line: Slash) -> None:
        if line.words:
            await self._verb("interrupt", line.words)
        else:
            self._chat.interrupt(self._agent())

    async def _fork(self, line: Slash) -> None:
        await self._chat.fork(self._words(line))

    async def _spawn(self, line: Slash) -> None:
        if not line.rest:
            raise UsageError("/spawn needs a TASK")
        agent = self._agent()
        self._chat.say_note(f"a subagent of {agent.label} works on it")
        self._chat.do(self._await_child(agent, line.rest))

    async def _await_child(self, agent: ChatAgent, task: str) -> None:
        outcome = await self._chat.ask_for_people(
            "spawn", "--parent", agent.id, "--no-stdin", "--", task
        )
        first = one_line(task[:60])
        if outcome.exit:
            self._chat.say_failure(f"the subagent has failed ({first}): {outcome.error}")
        else:
            self._chat.say(self._chat.style(f"● the subagent has finished ({first}):", "success"))
            chat = self._chat
            chat.say(*markdown(outcome.text, chat.screen.columns, chat.style).split("\n"))
        self._chat.screen.bell()
        await self._after()

    async def _unfold(self, line: Slash) -> None:
        try:
            self._chat.unfold_call(int(line.words[0]) if line.words else 0)
        except ValueError:
            raise UsageError("/unfold N: the first call of the last turn is 1") from None

    async def _help(self, line: Slash) -> None:
        if line.words:
            await self._verb(line.words[0], ("--help",))
            return
        width = max(map(len, KEYS))
        rows = [f"{f'/{name}':{width}}  {text}" for name, text in OWN.items()]
        rows += ["", *(f"{key:{width}}  {text}" for key, text in KEYS.items()), ""]
        columns = max(self._chat.screen.columns - 1, 2 * width)
        indent = " " * (width + 2)
        lines = []
        for row in rows:
            lines += wrap(row, columns, subsequent_indent=indent) or [""]
        others = [name for name in COMMANDS if name not in OWN and name not in _REFUSED]
        lines += wrap("and every verb of agentsdir by its name, such as /tag or /inspect:", columns)
        lines += wrap(", ".join(others), columns, break_on_hyphens=False)
        self._chat.say(*lines)

    async def _quit(self, line: Slash) -> None:
        del line
        self._chat.screen.leave()
