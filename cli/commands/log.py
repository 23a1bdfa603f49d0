"""`agentsdir log`."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Annotated, NamedTuple

import typer

from agentsdir.cli import options
from agentsdir.cli.conversation import Pages, SessionPrinter
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.options import OUTPUT, GroupedCommand, check_seconds
from agentsdir.cli.output import note, print_json
from agentsdir.cli.pager import paged
from agentsdir.cli.spoken import Spoken, find_spoken, read_spoken
from agentsdir.cli.trust import check_trust
from agentsdir.engine.conversation import ConversationTurns, LogTail, TurnStart
from agentsdir.engine.follow import INTERVAL, find_target, follow
from agentsdir.engine.parse import FoundSession, stores_of
from agentsdir.engine.replay import recorded_event
from agentsdir.formats.blocks import MAIN, StreamEvent, block_key
from agentsdir.formats.errors import UsageError
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import Record

Command = GroupedCommand
FOLLOWING = "Following"
_RANGE = re.compile(r"(\d{0,9})(\.\.)?(\d{0,9})")


class Selection(NamedTuple):
    """The turns to show: from `first` to `last`, or the last `newest` ones; 0 is no limit."""

    first: int = 0
    last: int = 0
    newest: int = 0

    @classmethod
    def of(cls, turns: str, newest: int) -> Selection:
        """Return what `--turns` and `-n` say. Raises `UsageError` for what is no range."""
        if turns and newest:
            raise UsageError("--turns and -n choose turns in two ways; give one")
        if not turns:
            return cls(newest=newest)
        found = _RANGE.fullmatch(turns)
        first, dots, last = found.groups() if found else ("", None, "")
        if not (first or last):
            raise UsageError(f"--turns is N, N..M, N.. or ..M, not {turns!r}")
        chosen = cls(int(first or 1), int(last or 0) if dots else int(first))
        if chosen.first == 0 or 0 < chosen.last < chosen.first or (dots and last == "0"):
            raise UsageError(f"there are no turns {turns}; the first is 1")
        return chosen

    def of_turns(self, count: int) -> tuple[int, int]:
        """Return the first and the last turn to show. Raises `UsageError` for one there is not."""
        if self.first > max(count, 1):
            have = f"there are {count} turns" if count != 1 else "there is 1 turn"
            raise UsageError(f"there is no turn {self.first}; {have}", kind="no-such-turn")
        first = max(count - self.newest + 1, 1) if self.newest else max(self.first, 1)
        return first, min(self.last or count, count)


def run(
    ctx: typer.Context,
    operand: options.Conversation = "",
    newest: Annotated[
        int,
        typer.Option("-n", metavar="N", min=0, help="Show the last N turns", show_default="all"),
    ] = 0,
    turns: Annotated[
        str, typer.Option(metavar="N..M", help="Show the turns N to M: 2, 3..5, 3.. or ..5")
    ] = "",
    tools: Annotated[
        bool,
        typer.Option(
            "--tools", help="Show calls of tools, their results and thoughts whole, not as a line"
        ),
    ] = False,
    following: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            rich_help_panel=FOLLOWING,
            help="Go on with what is added, with the agents that it spawns; begins with the last"
            " turn",
        ),
    ] = False,
    until_idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=check_seconds,
            rich_help_panel=FOLLOWING,
            help="With --follow: end when for this time nothing was added and no turn ran; -1: do"
            " not end",
        ),
    ] = -1,
    color: options.Color = "auto",
    no_pager: options.NoPager = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=OUTPUT, help="Print blocks as JSON Lines, and errors as JSON"
        ),
    ] = False,
) -> int:
    """Show a conversation: an agent's, that of a client's session, or of a transcript.

    \b
    Examples:
      agentsdir log
      agentsdir log fixer --turns 3..5 --tools
      agentsdir log fixer -n 1 --follow
      agentsdir log 5f0c1a7b
      agentsdir log session.jsonl --no-pager

    On a terminal it is paged, and answers are laid out as Markdown; $AGENTSDIR_PAGER, $PAGER or
    less shows it. In a pipe it is text.
    """
    env: Environment = ctx.obj
    if until_idle >= 0 and not following:
        raise UsageError("--until-idle goes with --follow")
    if following and turns:
        raise UsageError("--turns chooses among turns that are over; with --follow give -n")
    chosen = Selection.of(turns, newest)
    if following:
        until = until_idle if until_idle >= 0 else None
        return _follow(env, operand, chosen, Pages.of(env, color, in_full=tools), until, as_json)
    spoken = read_spoken(env, operand)
    first, last = chosen.of_turns(len(spoken.conversation.turns))
    if as_json:
        for event in spoken.conversation.events(first, last):
            if "block" in event:
                print_json(env, event["block"])
    else:
        folder = read_agent(spoken.paths).state.cwd if spoken.paths is not None else ""
        pages = Pages.of(env, color, in_full=tools, folder=folder)
        with paged(env, wanted=not no_pager):
            _show(env, spoken, pages, first, last)
    return _noted(env, spoken.findings)


def _show(env: Environment, spoken: Spoken, pages: Pages, first: int, last: int) -> None:
    write = env.stdout.write
    if spoken.paths is not None:
        write(pages.about(_about(spoken.paths)))
    for turn, events in spoken.conversation.by_turn(first, last):
        if turn is not None:
            write(pages.turn(turn))
        for event in events:
            write(pages.event(event))


def _about(paths: AgentPaths) -> str:
    state = read_agent(paths).state
    said = (state.name, paths.id, state.session.provider_name, state.cwd)
    return "  ".join(filter(None, said))


def _noted(env: Environment, findings: list[Finding]) -> int:
    for finding in findings:
        if finding.is_damage:
            note(env, str(finding))
    return Exit.PARTIAL if any(finding.is_damage for finding in findings) else Exit.OK


def _follow(
    env: Environment,
    operand: str,
    chosen: Selection,
    pages: Pages,
    until: float | None,
    as_json: bool,
) -> int:
    found = find_spoken(env, operand)
    if not isinstance(found, FoundSession):
        return _LogFollower(env, found, pages, as_json=as_json).run(chosen.newest or 1, until)
    if chosen.newest:
        raise UsageError(
            "-n with --follow is for agents; a client's session is shown from its start"
        )
    target = find_target(
        operand,
        layout=env.layout,
        stores=partial(stores_of, env.home, env.cwd, env.variables),
        cwd=env.cwd,
        home=env.home,
        variables=env.variables,
        check_trust=partial(check_trust, env),
    )
    follower = target.follower(hidden=False)
    printer = SessionPrinter(env, follower, events=False, pages=None if as_json else pages)
    return printer.run(follow(follower, time.sleep, until_idle=until))


class _LogFollower:
    """Shows an agent's log while it grows, with the logs of the agents that it spawns."""

    def __init__(self, env: Environment, paths: AgentPaths, pages: Pages, *, as_json: bool) -> None:
        self._env = env
        self._paths = paths
        self._pages = pages
        self._as_json = as_json
        self._findings: list[Finding] = []
        self._tail = LogTail(env.layout, paths, self._findings.append)
        self._conversation = ConversationTurns()
        self._shown: set[tuple[str, int]] = set()
        self._names: dict[str, str] = {}

    def run(self, newest: int, until: float | None) -> int:
        """Show the last turns and what is added, until nothing happens for some seconds."""
        if not self._as_json:
            self._env.stdout.write(self._pages.about(_about(self._paths)))
        self._show_past(newest)
        idle = 0.0
        while until is None or idle < until:
            self._env.stdout.flush()
            time.sleep(INTERVAL)
            added = list(self._tail.poll())
            for agent_id, record in added:
                self._add(agent_id, record)
            idle = 0.0 if added or self._is_running() else idle + INTERVAL
        return _noted(self._env, self._findings)

    def _show_past(self, newest: int) -> None:
        spawning: list[tuple[int, Record]] = []
        for _, record in self._tail.poll():
            self._conversation.add_record(record)
            if "child" in record.data:
                spawning.append((len(self._conversation.turns), record))
        first, _ = Selection(newest=newest).of_turns(len(self._conversation.turns))
        for number, record in spawning:
            if number >= first:
                self._watch(record)
        for turn, events in self._conversation.by_turn(first):
            self._begin(turn)
            for event in events:
                self._take(self._paths.id, event)

    def _is_running(self) -> bool:
        return any(locks.is_held(paths.turn) for paths in self._tail.agents)

    def _watch(self, record: Record) -> None:
        child = self._tail.watch(record)
        if child is not None:
            self._names[child] = str(record.data.get("name") or child)

    def _add(self, agent_id: str, record: Record) -> None:
        self._watch(record)
        if agent_id == self._paths.id:
            begun = self._conversation.add_record(record)
            if begun is not None:
                self._begin(begun)
        event = recorded_event(record)
        if event is not None:
            self._take(agent_id, event)

    def _begin(self, turn: TurnStart | None) -> None:
        if turn is not None and not self._as_json:
            self._env.stdout.write(self._pages.turn(turn))

    def _take(self, agent_id: str, event: StreamEvent) -> None:
        """Show an event; a block that was shown is shown again only in what an end changes."""
        block = event.get("block")
        if self._as_json:
            if block is not None:
                print_json(self._env, block)
            return
        if agent_id != self._paths.id:
            event = _of_child(event, self._names.get(agent_id, agent_id))
        if block is not None:
            key = agent_id, hash(block_key(block))
            if key in self._shown:
                if block.get("superseded"):
                    self._env.stdout.write(self._pages.about("a block above was replaced"))
                if block.get("type") != "subagent":
                    return
            self._shown.add(key)
        self._env.stdout.write(self._pages.event(event))


def _of_child(event: StreamEvent, name: str) -> StreamEvent:
    """Return an event of a spawned agent as one in a thread with its name."""
    if "block" in event:
        thread = event["block"]["conversationId"]
        thread = name if thread == MAIN else f"{name}, {thread}"
        return {**event, "block": {**event["block"], "conversationId": thread}}
    metadata = event["metadata"]
    why = metadata.get("aborted") or (metadata.get("error") or {}).get("message")
    if why is None:
        return {**event, "metadata": {}}
    block = {"type": "system", "subtype": "error", "message": f"the turn ended: {why}"}
    return {"block": {**block, "conversationId": name}}
