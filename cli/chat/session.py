"""The conversation at the prompt: which agent, turns that run, prompts that wait, questions.

It asks `agentsdir chat --jsonl` for everything (`client`), and shows it on the screen (`screen`).
What lines with a slash do is in `slash`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentsdir.cli.cells import cut
from agentsdir.cli.chat.agents import ChatAgent, QueuedPrompt, age, status_line
from agentsdir.cli.chat.client import Outcome, ProtocolClient
from agentsdir.cli.chat.completion import LineCompleter
from agentsdir.cli.chat.history import KeptHistory, state_folder
from agentsdir.cli.chat.questions import AskedQuestion
from agentsdir.cli.chat.screen import Screen
from agentsdir.cli.chat.slash import SlashCommands, offered
from agentsdir.cli.chat.turns import ShownTurn
from agentsdir.cli.chat.typed import Prompt, read_line
from agentsdir.cli.colour import style_of
from agentsdir.cli.output import escape_controls, one_line
from agentsdir.cli.questions import Answer
from agentsdir.formats.blocks import EVENT_TYPES
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping, Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.settings import Settings

_SWEEP_INTERVAL = 30.0
"""Seconds between two looks for sessions that are idle, at most (decision D26)."""
_SETTLING = 10.0
"""Seconds that entered lines have to be done once the prompt is left."""
_WHILE_LEAVING = frozenset({"new", "switch", "fork", "quit", "exit"})
"""What is done then of the commands: it says which agent the prompts after it are for."""
_NOT_SENT = "the prompt is not sent; Up brings it back"
_ECHO_ROWS = 12
_ECHO_LENGTH = 2000
_LIVE_ROWS = 8
_WAITING_ROWS = 4


class Chat:
    """One conversation at a terminal.

    Attributes:
        current: the agent that prompts go to.
        agents: those that this conversation has had to do with, by id.
        known: what the agents of the root are, by name or id, for Tab.

    Args:
        named: the agent that the command line names; empty for the last one of this folder.
        settings: of the agents directory.
    """

    def __init__(self, env: Environment, named: str, settings: Settings) -> None:
        self.env = env
        self._named = named
        self._settings = settings
        self.style = style_of(env)
        self.agents: dict[str, ChatAgent] = {}
        self.current: ChatAgent | None = None
        self.known: dict[str, str] = {}
        self._slots = ""
        self._questions: list[AskedQuestion] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_leaving = False
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self.client = ProtocolClient(
            env.root, env.cwd, env.variables, self._take_unasked, self.say_failure
        )
        self._slash = SlashCommands(self)
        history = KeptHistory(state_folder(env.variables, env.home), self.say_failure)
        completer = LineCompleter(offered(), self._words_after, env.cwd)
        self.screen = Screen(env.stdout, self, history, completer, variables=env.variables)

    async def run(self) -> None:
        """Talk until the person leaves."""
        self.client.start()
        try:
            await self.screen.run(self._begin)
        finally:
            try:
                await self._settle()
                self._say_goodbye()
            finally:
                for task in self._tasks:
                    task.cancel()
                await self.client.leave()

    async def _settle(self) -> None:
        """Have the prompts that were entered be in inboxes, for the next conversation."""
        self._is_leaving = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lines.join(), _SETTLING)
        while not self._lines.empty():
            self._say_undone(self._lines.get_nowait())

    def end(self) -> None:
        """Leave because of a signal: what has the terminal is not waited for."""
        if self.screen.is_handed_over:
            for task in self._tasks:
                task.cancel()
        self.screen.leave()

    def _begin(self) -> None:
        self.do(self._work())
        if self._settings.idle_timeout:
            self.do(self._sweep())

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Have work done beside the prompt."""
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except AgentsdirError as error:
            self.say_failure(error.message + (f" ({error.hint})" if error.hint else ""))

    async def _work(self) -> None:
        """Open the conversation, and then do what the lines say, one after the other."""
        await self._guarded(self._open())
        self.do(self.list_agents())
        while True:
            text = await self._lines.get()
            try:
                await self._guarded(self._line(text))
            finally:
                self._lines.task_done()
            self.screen.refresh()

    # What is said.

    def say(self, *lines: str) -> None:
        """Print lines that are safe for a terminal."""
        self.screen.print(*lines)

    def say_note(self, text: str) -> None:
        """Print a sentence of this program."""
        self.say(self.style(one_line(text), "faint"))

    def say_failure(self, text: str) -> None:
        """Print what went wrong."""
        self.say(self.style(f"agentsdir: {one_line(text)}", "failure"))

    def _say_goodbye(self) -> None:
        lines = []
        for agent in self.agents.values():
            if agent.running is not None:
                if agent is self.current:  # what is not complete was shown, too
                    self.say(*agent.running.end(time.monotonic(), None, None))
                lines.append(f"{agent.label}: its turn is interrupted")
            if agent.waiting:
                count = len(agent.waiting)
                prompts = "a prompt stays" if count == 1 else f"{count} prompts stay"
                lines.append(f"{agent.label}: {prompts} in its inbox")
        if self.current is not None:
            lines.append(f"`agentsdir chat {self.current.label}` goes on")
        for line in lines:
            self.say_note(line)
        self.screen.flush()

    # Requests.

    async def ask(self, verb: str, *words: str, **options: Any) -> Outcome:
        """Have a verb done whose answer is for this program."""
        return await self.client.request(verb, args=words, options=options, beside=True)[1]

    async def ask_for_people(self, verb: str, *words: str) -> Outcome:
        """Have a verb done, with words as in a shell, whose answer is text for a terminal."""
        terminal = {"columns": self.screen.columns, "color": self.style.on}
        return await self.client.request(verb, words=words, terminal=terminal, beside=True)[1]

    # Which agent.

    async def _open(self) -> None:
        outcome = await self.ask("inspect", self._named or "@last")
        if outcome.exit:
            if self._named:
                self.say_failure(outcome.error)
            else:
                await self._say_sessions()
            return
        agent = self.take_document(outcome.document)
        if not self._named:
            self.say_note(f"going on with {agent.label}{_when(agent)}; /new for another")
        await self.show(agent)

    async def _say_sessions(self) -> None:
        """Say which sessions the clients have of this folder: an agent can go on with one."""
        rows = (await self.ask("list", native=True, here=True)).rows
        for adapter in dict.fromkeys(str(row.get("adapter")) for row in rows):
            ids = [str(row["id"]) for row in rows if row.get("adapter") == adapter]
            count = "a session" if len(ids) == 1 else f"{len(ids)} sessions"
            newest = "" if len(ids) == 1 else " (the newest)"
            self.say_note(f"{count} of {adapter} here: /new --from {ids[0][:8]}{newest}")

    def take_document(self, document: dict[str, Any]) -> ChatAgent:
        """Return the agent that `inspect` said something of."""
        agent = self.agents.get(document["agentId"])
        if agent is None:
            agent = self.agents[document["agentId"]] = ChatAgent(document)
            self._take_inbox(agent)
        agent.document = document
        self.screen.refresh()
        return agent

    def _take_inbox(self, agent: ChatAgent) -> None:
        """Take what waits in the agent's inbox; it is sent when the person says so."""
        on_their_way = [one for one in agent.waiting if not one.message_id]
        agent.waiting = [
            QueuedPrompt(text_of(one["content"]), one["messageId"])
            for one in agent.document.get("pending") or ()
            if one.get("kind") == "user"
        ]
        agent.waiting += on_their_way
        agent.holds = bool(agent.waiting)

    async def find(self, word: str) -> ChatAgent | None:
        """Return the agent that a word names; None if there is none, which is said."""
        outcome = await self.ask("inspect", word)
        if outcome.exit:
            self.say_failure(outcome.error)
            return None
        return self.take_document(outcome.document)

    async def look_at_current(self) -> None:
        """Look what has become of the agent of the conversation, which may be gone."""
        current = self.current
        if current is None:
            return
        outcome = await self.ask("inspect", current.id)
        if not outcome.exit:
            self.take_document(outcome.document)
        elif outcome.kind == NoSuchAgent.kind:
            self.say_note(f"{current.label} is gone; /new begins another")
            self.current = None

    async def show(self, agent: ChatAgent) -> None:
        """Make an agent the one that prompts go to, and show how far it is."""
        self.current = agent
        said = agent.document
        shown = ""
        if agent.running is None and (said.get("counters") or {}).get("blocks"):
            shown = (await self.ask_for_people("log", agent.id, "-n", "1")).text.strip("\n")
        if shown:
            self.say("", *shown.split("\n"))
        else:
            title = one_line(f"── {agent.label} · {said.get('provider')} · {said.get('cwd')}")
            self.say("", self.style(cut(title, self.screen.columns - 1), "faint"))
        turn = agent.running
        if turn is not None:
            self.say(*self._echo(turn.prompt), *turn.unprinted)
            turn.unprinted = []
        if agent.holds and agent.waiting:
            self._say_held()
        self.screen.refresh()

    def _say_held(self) -> None:
        self.say_note("prompts wait in its inbox: Enter sends them, /queue drop N removes one")

    async def make(self, words: Sequence[str] = ()) -> ChatAgent | None:
        """Make an agent with words of `new`, and show it."""
        return await self._go_to_new(await self.client.request("new", words=words)[1])

    async def fork(self, words: Sequence[str]) -> ChatAgent | None:
        """Make a copy of an agent with words of `fork`, and show it."""
        return await self._go_to_new(await self.client.request("fork", words=words)[1])

    async def _go_to_new(self, outcome: Outcome) -> ChatAgent | None:
        if outcome.exit:
            self.say_failure(outcome.error)
            return None
        for note in outcome.notes:
            self.say_note(note)
        made = outcome.document.get("agentId")
        if made is None:  # it was asked for its help
            self.say(*outcome.text.rstrip("\n").split("\n"))
            return None
        return await self.go_to(str(made))

    async def go_to(self, word: str) -> ChatAgent | None:
        """Show the agent that a word names."""
        agent = await self.find(word)
        if agent is not None:
            await self.show(agent)
            self.do(self.list_agents())
        return agent

    async def list_agents(self) -> None:
        """Learn what agents there are."""
        outcome = await self.ask("list")
        rows = [row for row in outcome.rows if row.get("state") != "terminated"]
        self.known = {
            one_line(str(row.get("name") or row["agentId"])): one_line(
                f"{row.get('provider')} · {row.get('state')} · {row.get('title') or ''}"
            )
            for row in rows
            if "agentId" in row
        }
        slots = self._settings.max_slots
        are_full = sum(row.get("state") == "active" for row in rows) >= slots
        self._slots = f"all {slots} slots are taken" if are_full else ""
        self.screen.refresh()

    def _words_after(self, command: str) -> Mapping[str, str]:
        return self.modes() if command == "mode" else self.known

    def modes(self) -> Mapping[str, str]:
        """Return the permission modes of the agent's client, and what each does."""
        from agentsdir.adapters.protocol import settings_of  # adapters take long to load
        from agentsdir.engine.providers import provider_of

        if self.current is None:
            return {}
        try:
            provider = provider_of(str(self.current.document.get("provider")))[1]
        except AgentsdirError:  # one of another version of this program
            return {}
        return settings_of(provider).modes or {}

    # Lines.

    def submitted(self, text: str) -> None:
        """Take a line; see `screen.Handler`."""
        self._lines.put_nowait(text)

    async def _line(self, text: str) -> None:
        line = read_line(text)
        if line is None:
            agent = self.current
            is_wanted = agent is not None and agent.waiting and agent.running is None
            if agent is not None and is_wanted and not self._is_leaving:
                self.send_next(agent)
        elif isinstance(line, Prompt):
            await self._prompt(line.text)
        elif self._is_leaving and line.name not in _WHILE_LEAVING:
            self._say_undone(text)
        else:
            self.say(self.style(cut(f"> {text.strip()}", _ECHO_LENGTH), "faint"))
            await self._slash.run(line)

    def _say_undone(self, text: str) -> None:
        self.say_failure(f"not done, since you left: {text.strip()[:_ECHO_LENGTH]}")

    async def _prompt(self, text: str) -> None:
        agent = self.current or await self.make()
        if agent is None:
            self.say_note(_NOT_SENT)
            return
        if agent.running is None:
            agent.holds = False  # a prompt that is typed after an interrupt goes on
        await self._enqueue(agent, text)

    async def _enqueue(self, agent: ChatAgent, text: str) -> None:
        """Put a prompt into the agent's inbox, where it outlives this process."""
        place = QueuedPrompt(text)
        agent.waiting.append(place)
        self.screen.refresh()
        outcome = await self.client.request("queue", args=[agent.id], stdin=text)[1]
        at = next(at for at, one in enumerate(agent.waiting) if one is place)
        del agent.waiting[at]
        if outcome.exit:
            self.say_failure(outcome.error)
            self.say_note(_NOT_SENT)
            await self.look_at_current()
            return
        queued = QueuedPrompt(text, str(outcome.document["messageId"]))
        if queued not in agent.waiting:  # the inbox may have been looked at meanwhile
            agent.waiting.insert(at, queued)
        self._go_on(agent)

    def _go_on(self, agent: ChatAgent) -> None:
        """Send the next prompt that waits, if it is time."""
        is_time = agent.running is None and agent.waiting and not agent.holds
        if is_time and not self._is_leaving and agent.waiting[0].message_id:
            self.send_next(agent)

    # Turns.

    def send_next(self, agent: ChatAgent) -> None:
        """Run the turn of the first prompt that waits, and show it while it runs."""
        agent.holds = False
        text, message_id = agent.waiting.pop(0)
        encoding = self.env.stdout.encoding or "ascii"
        turn = ShownTurn(text, self.screen.columns, encoding, self.style, time.monotonic())
        agent.running = agent.last = turn
        if agent is self.current:
            self.say(*self._echo(text))

        def take(given: dict[str, Any]) -> bool:
            event = given.get("value")
            if not isinstance(event, dict) or event.get("type") not in EVENT_TYPES:
                return False
            turn.columns = self.screen.columns
            self._show_lines(agent, turn, turn.take(event, time.monotonic()))
            self.screen.refresh()
            return True

        options = {"no-message": True, "message-id": message_id}
        turn.request, ended = self.client.request("send", take, args=[agent.id], options=options)
        self.do(self._await_turn(agent, turn, ended))
        self.screen.refresh()

    def _echo(self, text: str) -> list[str]:
        """Return the lines that show a prompt above its answer."""
        shown = escape_controls(text[:_ECHO_LENGTH]).split("\n")
        lines = [f"> {shown[0]}", *(f"  {line}" for line in shown[1:_ECHO_ROWS])]
        if len(text) > _ECHO_LENGTH or len(shown) > _ECHO_ROWS:
            lines.append(f"  … {len(text):,} characters")
        return ["", *(self.style(line, "prompt") for line in lines)]

    def _show_lines(self, agent: ChatAgent, turn: ShownTurn, lines: Sequence[str]) -> None:
        if agent is self.current:
            self.say(*lines)
        else:
            turn.unprinted += lines

    async def _await_turn(
        self, agent: ChatAgent, turn: ShownTurn, ended: asyncio.Future[Outcome]
    ) -> None:
        outcome = await ended
        result = outcome.result
        now = time.monotonic()
        lines = turn.end(now, result.get("usage"), result.get("costUsd"))
        if outcome.exit:
            said = "interrupted" if turn.is_interrupted else outcome.error
            lines.append(
                self.style(one_line(said), "warning" if turn.is_interrupted else "failure")
            )
        self._show_lines(agent, turn, lines)
        agent.running = None
        self._questions = [one for one in self._questions if one.request != turn.request]
        agent.holds = bool(outcome.exit)
        refreshed = await self.ask("inspect", agent.id)
        if not refreshed.exit:
            self.take_document(refreshed.document)
            if agent.holds and agent.running is None:
                self._take_inbox(agent)  # the prompt may be there still
        if agent is not self.current:
            how = "has failed" if outcome.exit else "has finished"
            self.say(
                self.style(f"● {agent.label} {how}", "failure" if outcome.exit else "success")
                + self.style(f" · {turn.summary(now)} · /switch {agent.label}", "faint")
            )
            self.screen.bell()
        elif agent.holds and agent.waiting:
            self._say_held()
        self._go_on(agent)

    def interrupted(self) -> bool:
        """Take Ctrl-C; see `screen.Handler`."""
        agent = self.current
        if agent is None or agent.running is None:
            return False
        self.interrupt(agent)
        return True

    def interrupt(self, agent: ChatAgent) -> None:
        """End the turn that an agent runs."""
        self.do(self._interrupt(agent))

    async def _interrupt(self, agent: ChatAgent) -> None:
        if agent.running is not None:
            agent.running.is_interrupted = True
            await self.client.request("cancel", args=[agent.running.request])[1]
            return
        outcome = await self.ask("interrupt", agent.id)  # another process may run its turn
        if outcome.exit:
            self.say_failure(outcome.error)

    def may_leave(self) -> str:
        """Return why not; see `screen.Handler`."""
        working = [agent.label for agent in self.agents.values() if agent.running is not None]
        return f"{', '.join(working)} would be interrupted" if working else ""

    def unfold(self) -> None:
        """Print the last call; see `screen.Handler`."""
        self.unfold_call(0)

    def unfold_call(self, number: int) -> None:
        """Print a tool call of the last turn whole: the first is 1; 0 is the last one."""
        turn = self.current.last if self.current is not None else None
        calls = turn.calls if turn is not None else []
        if turn is None or not -len(calls) < number <= len(calls) or not calls:
            self.screen.hint("this turn has no such tool call")
            return
        self.say(*turn.unfolded(calls[number - 1]))

    # Questions.

    def _take_unasked(self, given: dict[str, Any]) -> None:
        if isinstance(given.get("question"), dict):
            self._questions.append(AskedQuestion(given["question"], given.get("id")))
            self.screen.bell()
        elif "questionClosed" in given:
            closed = given["questionClosed"]
            self._questions = [one for one in self._questions if one.id != closed]
        self.screen.refresh()

    def question(self, columns: int, rows: int) -> list[str]:
        """Return the rows of the first question; see `screen.Handler`."""
        if not self._questions:
            return []
        return self._questions[0].lines(columns, rows, len(self._questions))

    def answered(self, key: str) -> bool:
        """Take a key as an answer; see `screen.Handler`."""
        question = self._questions[0]
        answer = question.answer_of(key)
        if answer is not None:
            self._answer(question, answer)
        elif key == question.REASON:
            self.screen.ask_reason()
        elif key == question.VIEW:
            self.say(*question.whole())
        else:
            return False
        return True

    def gave_reason(self, text: str | None) -> None:
        """Take the reason of a no; see `screen.Handler`."""
        if text is not None and self._questions:
            self._answer(self._questions[0], Answer(allowed=False, reason=text))
        self.screen.refresh()

    def _answer(self, question: AskedQuestion, answer: Answer) -> None:
        self._questions.remove(question)
        self.say_note(question.said(answer))
        self.do(self._send_answer(question, answer))

    async def _send_answer(self, question: AskedQuestion, answer: Answer) -> None:
        word = "yes" if answer.allowed else "no"
        options = {"keep": answer.keep, "reason": answer.reason}
        outcome = await self.client.request("answer", args=[question.id, word], options=options)[1]
        if outcome.exit:
            self.say_failure(outcome.error)

    # The rows at the bottom.

    def live(self, columns: int) -> list[str]:
        """Return the rows of what goes on; see `screen.Handler`."""
        del columns
        agent = self.current
        if agent is None or agent.running is None:
            return []
        rows = max(1, min(_LIVE_ROWS, self.screen.rows // 3))
        return agent.running.live(rows, time.monotonic())

    def waiting(self, columns: int) -> list[str]:
        """Return the rows of prompts that wait; see `screen.Handler`."""
        agent = self.current
        if agent is None or (agent.running is None and not agent.holds):
            return []  # what is typed now is sent at once
        waiting = agent.waiting
        rows = [
            cut(f"{at} queued: {one_line(one.text[:columns])}", columns - 1)
            for at, one in enumerate(waiting[:_WAITING_ROWS], 1)
        ]
        if len(waiting) > _WAITING_ROWS:
            rows.append(f"and {len(waiting) - _WAITING_ROWS} more: /queue")
        return rows

    def status(self, columns: int) -> str:
        """Return the row of the agent's state; see `screen.Handler`."""
        others = sum(
            one.running is not None for one in self.agents.values() if one is not self.current
        )
        said = status_line(self.current, self._slots)
        return f"{said} · {others} more at work" if others else said

    # Sessions that nothing is asked of.

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_INTERVAL, max(1.0, self._settings.idle_timeout)))
            outcome = await self.ask("suspend", idle=True)
            for row in outcome.rows:
                self.say_note(f"{row.get('name') or row.get('agentId')} is suspended: it was idle")
                agent = self.agents.get(str(row.get("agentId")))
                if agent is not None:
                    await self.find(agent.id)


def text_of(content: Sequence[dict[str, Any]]) -> str:
    """Return a message's text; of an image, that there is one."""
    return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)


def _when(agent: ChatAgent) -> str:
    last = agent.document.get("lastActivity") or agent.document.get("createdAt")
    try:
        then = datetime.fromisoformat(str(last))
    except ValueError:
        return ""
    return f", {age((datetime.now(UTC) - then).total_seconds())}"
