"""A hundred sessions of programs that use the library, and commands beside them: a program.

It takes a job as JSON (see `main`). The first process has an `App` whose sessions threads use, and
an `AsyncApp` whose sessions tasks use; other processes have an `App` each, and others run commands.
All of them use the sessions of the same names. Each process writes down, at its end, what became of
every call that it made, and which callbacks were called for it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from indoors import agentsdir, drain
from throng import SHELL

from agentsdir import (
    AgentConfig,
    AgentsdirError,
    App,
    AsyncApp,
    Callbacks,
    Execution,
    FileSessionStore,
    ModelRequest,
    ProviderError,
    ToolCall,
    element,
    model_provider,
    register,
)
from agentsdir.engine.app.session_store import Snapshot

LATE = 75
"""Seconds after which a process prints the stacks of its threads, and ends."""
WAYS = ("send",) * 9 + ("queue", "queue", "render", "abort", "abort", "stop", "spawn", "late")
COMMANDS = ("send", "send", "send", "queue", "interrupt", "spawn", "list", "inspect")
CHILD = AgentConfig(provider="echo")
MAX_ACTIVE = 6
PATIENCE = 30


@dataclass
class Made:
    """One call that a worker made, and what became of it.

    Attributes:
        worker: its calls to one session are in the order in which it made them.
        text: of the message as it was given; callbacks add to it.
        message: its id; empty if there is none, or it did not get so far.
        turn: the id of the execution.
        end: the kind of the error; empty for none.
        called: the callbacks, in order, each with the level and what tells one from another.
        shown: the ids of the blocks that iterating the execution yielded.
        wrapped: the middleware that was run.
    """

    worker: str
    way: str
    agent: str
    text: str
    message: str = ""
    turn: str = ""
    end: str = ""
    response: str = ""
    aborted: bool = False
    called: list[tuple[str, str, Any]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    wrapped: list[str] = field(default_factory=list)


_call: ContextVar[Made | None] = ContextVar("_call", default=None)


class Notes:
    """What one process has to tell at its end."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.executions: list[tuple[Made, Execution]] = []
        self.around: list[tuple[str, str, str]] = []
        """The callbacks that are of no call: the name, the level, the agent."""

    def note(self, name: str, level: str, key: Any) -> None:
        """Note a callback with the call in whose thread it is called."""
        made = _call.get()
        if made is not None:
            made.called.append((name, level, key))

    def callbacks(self, level: str) -> Callbacks:
        """Return callbacks, all of them, that note each time they are called."""
        note, around = partial(self.note), self.around

        def before_send(_session: Any, content: Any) -> str:
            note("before_send", level, None)
            return f"{content[0]['text']} {level}"

        async def tick_start(tick: int, execution: str) -> None:
            note("tick_start", level, [tick, execution])

        def event(given: Any) -> None:
            if given["type"] == "block_complete":
                note("block", level, given["block"]["id"])

        return Callbacks(
            on_event=event,
            on_tick_start=tick_start,
            on_tick_end=lambda tick, _usage: note("tick_end", level, tick),
            on_complete=lambda result: note("complete", level, result.turn_id),
            on_error=lambda error: note("error", level, type(error).__name__),
            on_before_send=before_send,
            on_after_send=lambda _session, result: note("after_send", level, result.message_id),
            on_session_create=lambda session: around.append(("create", level, session.id)),
            on_session_close=lambda session: around.append(("close", level, session.id)),
            on_before_persist=lambda session, _snapshot: note("before_persist", level, session.id),
            on_after_persist=lambda session, _snapshot: note("after_persist", level, session.id),
            on_after_restore=lambda session, _snapshot: around.append(
                ("restore", level, session.id)
            ),
        )

    def write(self, path: Path) -> None:
        """Write it down. An execution that was aborted may have had its result before its id."""
        for made, execution in self.executions:
            made.message, made.turn = execution.message_id or "", execution.id or ""
        path.write_text(json.dumps([[asdict(made) for made in self.made], self.around]))


def outermost(call: Any, next_: Callable[[Any], Any]) -> Any:
    """Middleware of the app: it finds the call's notes in its context, and keeps them at hand."""
    made: Made = call.context["made"]
    _call.set(made)  # also for what comes after the turn, in the same thread
    made.wrapped.append("app")
    return next_(call)


def inner(call: Any, next_: Callable[[Any], Any]) -> Any:
    """Middleware of the call."""
    call.context["made"].wrapped.append("call")
    return next_(call)


def speak(request: ModelRequest) -> Iterator[str | ToolCall]:
    """Answer as the prompt says: after a while, with a tool call, or not at all."""
    text = str(request.content)
    if "late" in text:
        end = time.monotonic() + 0.4
        while time.monotonic() < end and not request.is_cancelled():
            time.sleep(0.01)
    if "7" in text and not request.results:
        yield from ("I ", "look.", ToolCall("shell", {"command": "it"}))
        return
    if "9" in text:
        raise ProviderError("it is said to fail", kind="said-so")
    yield from ("heard ", text)


def agent_of(job: dict[str, Any]) -> Any:
    """Return the component of all sessions, which are of four kinds."""

    def component(kind: int) -> AgentConfig:
        return (
            AgentConfig(provider="speaking", tools=[SHELL]),
            AgentConfig(provider="counted", options={"file": job["script"]}),
            AgentConfig(provider="script", options={"file": job["calls"]}, tools=[SHELL]),
            AgentConfig(provider="echo"),
        )[kind]

    return element(component, kind=0)


class Program:
    """One app's worth of a process: what its workers do, whatever they are."""

    def __init__(self, job: dict[str, Any], name: str, notes: Notes) -> None:
        self.job, self.name, self.notes = job, name, notes
        self.app_options: dict[str, Any] = {
            "callbacks": notes.callbacks("app"),
            "max_active": MAX_ACTIVE,
            "idle_timeout": 0.3,
            "store": FileSessionStore(job["store"]),
        }

    def chosen(self, chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
        """Return the name of a session, and what it is asked for with."""
        # Few sessions get most of it, so that workers meet; each is some worker's first one.
        count = self.job["sessions"]
        which = number % count if number >= 0 else int(count * chance.random() ** 2)
        callbacks = self.notes.callbacks("session")
        return f"s{which:03}", {"props": {"kind": which % 4}, "callbacks": callbacks}

    def calls(self, worker: int) -> Iterator[tuple[random.Random, str, int, int]]:
        """Yield what a worker does, in order: its chance, its name, the number, the session."""
        name = f"{self.name}{worker:02}"
        chance = random.Random(f"{self.job['seed']} {name}")
        for number in range(self.job["rounds"]):
            yield chance, name, number, worker if number == 0 else -1

    def way(self, chance: random.Random, session: str) -> str:
        """Return what is done: only the last sessions are closed."""
        if int(session[1:]) >= self.job["sessions"] - self.job["mortal"] and chance.random() < 0.3:
            return "close"
        return chance.choice(WAYS)

    def begin(self, session: Any, way: str, chance: random.Random, worker: str, number: int) -> Any:
        """Begin a call; return the call, and its execution if it has one."""
        text = f"{worker} {number} {way}"
        made = Made(worker, way, session.id, text)
        self.notes.made.append(made)
        context = {"made": made}
        try:
            if way == "spawn":
                return made, session.spawn.with_context(**context).use(inner)(CHILD, text)
            if way == "render":
                return made, session.render.with_context(**context).use(inner)()
            send = session.send.with_context(**context).use(inner)
            if way == "late":
                send = send.with_timeout(chance.uniform(0.02, 0.2))
            return made, send(text)
        except AgentsdirError as error:
            made.end = error.kind
            return made, None

    def ended(self, made: Made, execution: Any, error: BaseException | None, result: Any) -> None:
        """Note how a call ended."""
        if error is not None and not isinstance(error, AgentsdirError):
            raise error
        made.end = "" if error is None else error.kind
        made.response = "" if error is not None else result.response
        made.aborted = execution.is_aborted
        self.notes.executions.append((made, execution))


class Threads(Program):
    """Workers that are threads."""

    def run(self, count: int) -> None:
        """Have so many do their work."""
        with App(agent_of(self.job), **self.app_options) as app:
            app.use(outermost)
            failed: list[BaseException] = []

            def work(worker: int) -> None:
                try:
                    self.work(app, worker)
                except BaseException as error:  # noqa: BLE001, the main thread raises it
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for error in failed:
                raise error
            check_memory(app)

    def work(self, app: App, worker: int) -> None:
        """Make calls, up to three at once to one session."""
        for chance, name, number, first in self.calls(worker):
            wanted, options = self.chosen(chance, first)
            session = app.session(wanted, **options)
            begun = []
            for more in range(chance.choice((1, 1, 1, 2, 3))):
                way, at = self.way(chance, wanted), number * 10 + more
                if way == "close":
                    self.brief("close", name, session, session.close)
                elif way == "queue":
                    self.queue(session, name, at)
                elif way == "stop":
                    self.brief("stop", name, session, session.interrupt)
                else:
                    begun.append(self.begin(session, way, chance, name, at))
            for made, execution in begun:
                if execution is not None:
                    if made.way == "abort":
                        time.sleep(chance.uniform(0, 0.1))
                        execution.abort()
                    made.shown = blocks_of(list(execution))
                    self.ended(made, execution, error := error_of(execution),
                               None if error else execution.result)  # fmt: skip

    def queue(self, session: Any, worker: str, number: int) -> None:
        """Leave a message."""
        made = Made(worker, "queue", session.id, f"{worker} {number} queue")
        self.notes.made.append(made)
        try:
            queue = session.queue.with_context(made=made).use(inner)
            made.message = queue(made.text)
        except AgentsdirError as error:
            made.end = error.kind

    def brief(self, way: str, worker: str, session: Any, act: Callable[[], Any]) -> None:
        """Do what is no procedure."""
        made = Made(worker, way, session.id, "")
        self.notes.made.append(made)
        try:
            act()
        except AgentsdirError as error:
            made.end = error.kind


class Tasks(Program):
    """Workers that are tasks of asyncio."""

    def run(self, count: int) -> None:
        """Have so many do their work."""
        asyncio.run(self.run_all(count))

    async def run_all(self, count: int) -> None:
        """Do the same in the loop."""
        async with AsyncApp(agent_of(self.job), **self.app_options) as app:
            app.app.use(outermost)
            async with asyncio.TaskGroup() as group:
                for worker in range(count):
                    group.create_task(self.work(app, worker))
            await asyncio.to_thread(check_memory, app.app)

    async def work(self, app: AsyncApp, worker: int) -> None:
        """Make calls, up to three at once to one session."""
        for chance, name, number, first in self.calls(worker):
            # From the other end, so that each session is made by one or the other.
            wanted, options = self.chosen(chance, self.job["sessions"] - 1 - first if first >= 0
                                          else first)  # fmt: skip
            session = await app.session(wanted, **options)
            begun = []
            for more in range(chance.choice((1, 1, 1, 2, 3))):
                way, at = self.way(chance, wanted), number * 10 + more
                if way in ("close", "stop"):
                    await self.brief(way, name, session)
                elif way == "queue":
                    way = "send"  # an AsyncSession's `queue` is no procedure
                    begun.append(self.begin(session, way, chance, name, at))
                else:
                    begun.append(self.begin(session, way, chance, name, at))
            for made, execution in begun:
                if execution is not None:
                    await self.finish(made, execution, chance)

    async def finish(self, made: Made, execution: Any, chance: random.Random) -> None:
        """Wait for a call; now and then the wait is given up, and begun again."""
        if made.way == "abort":
            await asyncio.sleep(chance.uniform(0, 0.1))
            execution.abort()
        with_limit = chance.random() < 0.2
        try:
            await asyncio.wait_for(execution.result, 0.01 if with_limit else None)
        except TimeoutError:
            pass
        except AgentsdirError:
            pass
        made.shown = blocks_of([event async for event in execution])
        error, result = None, None
        try:
            result = await execution.result
        except AgentsdirError as raised:
            error = raised
        self.ended(made, execution.execution, error, result)

    async def brief(self, way: str, worker: str, session: Any) -> None:
        """Do what is no procedure."""
        made = Made(worker, way, session.id, "")
        self.notes.made.append(made)
        act: Callable[[], Awaitable[Any]] = session.close if way == "close" else session.interrupt
        try:
            await act()
        except AgentsdirError as error:
            made.end = error.kind


def blocks_of(events: list[Any]) -> list[str]:
    """Return the ids of the blocks that events complete."""
    return [event["block"]["id"] for event in events if event["type"] == "block_complete"]


def error_of(execution: Any) -> BaseException | None:
    """Return what an execution raises; None if it has a result."""
    try:
        execution.wait()
    except AgentsdirError as error:
        return error
    return None


def check_memory(app: Any) -> None:
    """Wait until no more sessions are in memory than may be."""
    end = time.monotonic() + PATIENCE
    while (left := len(app.sessions)) > MAX_ACTIVE:
        assert time.monotonic() < end, f"{left} sessions are in memory"
        time.sleep(0.01)


def command(job: dict[str, Any], name: str, notes: Notes) -> None:
    """Run commands, one after the other."""
    chance = random.Random(f"{job['seed']} {name}")
    for number in range(job["rounds"] * 4):
        session = f"s{int(job['sessions'] * chance.random() ** 2):03}"
        way = chance.choice(COMMANDS)
        made = Made(name, f"agentsdir {way}", "", f"{name} {number} {way}")
        arguments = {
            "send": ("send", "--json", session, made.text),
            "queue": ("queue", session, made.text),
            "interrupt": ("interrupt", session),
            "spawn": ("spawn", "--parent", session, "--provider", "echo", made.text),
            "list": ("list",),
            "inspect": ("inspect", "--runtime", session),
        }[way]
        code, out, err = agentsdir(*arguments)
        notes.made.append(made)
        made.end = str(code) if code else ""
        if code:
            made.response = err
        elif way == "send":
            said = json.loads(out)
            made.agent, made.message = said["agentId"], said["messageId"]
            made.turn, made.response = said["turnId"], said["response"]
        elif way == "queue":
            made.message = out.strip()


def resources() -> tuple[int, set[str]]:
    """Return how many threads this process has, and its descriptors with what they are of."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder that is read here
            found.add(f"{path.name} {path.readlink()}")
    return threading.active_count(), found


def in_process(job: dict[str, Any], name: str, work: Callable[[Notes], None]) -> None:
    """Do a process's work; write its notes; nothing may be left of it."""
    faulthandler.dump_traceback_later(LATE, exit=True)
    before, notes = resources(), Notes()
    work(notes)
    notes.write(Path(job["notes"]) / name)
    assert (after := resources()) == before, (name, before, after, threading.enumerate())
    faulthandler.cancel_dump_traceback_later()


def forked(job: dict[str, Any], name: str, work: Callable[[Notes], None]) -> int:
    """Do the same in a child process, and return its id."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            in_process(job, name, work)
            code = 0
        except BaseException:  # noqa: BLE001, it is seen on stderr
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def both(job: dict[str, Any], notes: Notes) -> None:
    """Have threads and tasks at once, half of them each, in this process."""
    each, failed = job["workers"] // 2, []

    def tasks() -> None:
        try:
            Tasks(job, "a", notes).run(each)
        except BaseException as error:  # noqa: BLE001, raised below
            failed.append(error)

    loop = threading.Thread(target=tasks)
    loop.start()
    Threads(job, "t", notes).run(each)
    loop.join()
    for error in failed:
        raise error


def main() -> None:
    """Do a job: `sessions`, `workers` of the first process, `programs` and `commands` beside it.

    `rounds` is how often a worker goes on, `mortal` how many sessions may be closed, `script` and
    `calls` are scripts, `store` and `notes` are folders, `seed` is for the chance.
    """
    job = json.loads(sys.argv[1])
    register(model_provider("speaking", speak))
    # So that every process that is forked has the modules, and the first loop has been there.
    with App(agent_of(job)) as app:
        app.run("first", props={"kind": 3}).wait()
        app.run("7 first", props={"kind": 0}).wait()
        for number in range(job["sessions"] // 2):  # so that commands find some
            app.session(f"s{number:03}", props={"kind": number % 4})
    (Path.home() / "calls").unlink()  # of a session that is gone
    assert agentsdir("list")[0] == 0
    asyncio.run(asyncio.to_thread(int))
    pids = [
        forked(job, f"p{number}", lambda notes, name=f"p{number}": Threads(job, name, notes).run(4))
        for number in range(job["programs"])
    ] + [
        forked(job, f"c{number}", lambda notes, name=f"c{number}": command(job, name, notes))
        for number in range(job["commands"])
    ]  # fmt: skip
    in_process(job, "main", partial(both, job))
    faulthandler.dump_traceback_later(LATE, exit=True)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * len(pids), codes
    drain()
    for name in (store := FileSessionStore(job["store"])).list():
        kept: Snapshot | None = store.load(name)
        assert kept is not None
        Path(job["notes"], f"kept {name}").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
