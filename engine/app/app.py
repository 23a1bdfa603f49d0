"""The app: makes sessions of one agent, and holds what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from agentsdir.engine import create, lookup
from agentsdir.engine.app.component import AgentConfig, config_of, recorded_props, with_props
from agentsdir.engine.app.execution import Execution, RunningExecutions
from agentsdir.engine.app.persistence import resolved, restore
from agentsdir.engine.app.session import Session
from agentsdir.engine.app.session_options import NO_CALLBACKS, SessionOptions
from agentsdir.engine.app.session_registry import SessionRegistry
from agentsdir.engine.close import remove_agent
from agentsdir.formats import ids
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, SessionStateError, UsageError
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentsdir.adapters.protocol import Architecture
    from agentsdir.engine.app.component import Agent
    from agentsdir.engine.app.persistence import ResolveContext
    from agentsdir.engine.app.procedures import Middleware
    from agentsdir.engine.app.prompt import Input
    from agentsdir.engine.app.session_store import SessionStore, Snapshot
    from agentsdir.engine.callbacks import Callbacks
    from agentsdir.engine.create import NewAgent
    from agentsdir.engine.runner import ExecutionRunner
    from agentsdir.engine.services import Services
    from agentsdir.engine.tools import Tool
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState


class SharedOptions(TypedDict, total=False):
    """What all sessions of a program share, given by name.

    Attributes:
        tools: of all sessions, beside those of their configurations.
        callbacks: called for the turns of all sessions, before a session's own.
        runner: around the model and the tools of all sessions, spawned children included; or a
            function, such as its class, that makes one for each session and its children.
        max_active: how many sessions are held in memory; without it there is no limit.
        idle_timeout: seconds without use after which a session is put out of memory.
        store: keeps a snapshot of each session, saved after each turn.
        resolve: functions that make values of a session and its snapshot when it comes into memory,
            in place of applying the snapshot; `Session.resolved` has the values by the same keys.
        max_timeline_entries: how many blocks of a timeline are held in memory, and given to a
            model; the log keeps them all.
    """

    tools: Sequence[Tool]
    callbacks: Callbacks | None
    runner: ExecutionRunner | Callable[[], ExecutionRunner]
    max_active: int
    idle_timeout: float
    store: SessionStore
    resolve: Mapping[str, Callable[[ResolveContext], Any]]
    max_timeline_entries: int


class AppOptions(SharedOptions, total=False):
    """What an app may be given by name, beside what its sessions share.

    Attributes:
        provider: of sessions whose configuration names none.
        model: of the same sessions, if it names no model either.
        max_ticks: how many model calls a turn may take, where a configuration does not say.
    """

    provider: str | Architecture
    model: str
    max_ticks: int


def check_names(given: Mapping[str, Any], known: type) -> None:
    """Raise `TypeError` for an option that a typed dictionary does not have."""
    for name in given.keys() - known.__annotations__.keys():
        raise TypeError(
            f"there is no option {name!r}; there are {', '.join(known.__annotations__)}"
        )


class BaseApp:
    """Makes sessions of an agent: a component, an element or an `AgentConfig`.

    A `with` block closes the app at its end: it waits for the turns that run. An exception that
    leaves the block, as Ctrl-C does, aborts them first. The sessions stay on disk, and another app
    goes on with them.

    Args:
        agent: what the sessions run.
        services: makes what the engine needs of this machine; called for each turn, as each may be
            in another thread.
        new: the fields of a new agent that no configuration has, as who its user is.
        options: see `AppOptions`.
    """

    def __init__(
        self,
        agent: Agent,
        services: Callable[[], Services],
        new: NewAgent,
        **options: Unpack[AppOptions],
    ) -> None:
        check_names(options, AppOptions)
        self.services = services
        self.tools = tuple(options.get("tools", ()))
        self.middleware: tuple[Middleware, ...] = ()
        self.running = RunningExecutions()
        self.sessions = SessionRegistry(
            options.get("max_active"), options.get("idle_timeout"), self._put_out
        )
        self.store = options.get("store")
        self.max_timeline_entries = options.get("max_timeline_entries")
        self._resolve = options.get("resolve")
        self._agent = agent
        self._new = new
        self._callbacks = options.get("callbacks") or NO_CALLBACKS
        self._runner = options.get("runner")
        self._options = SessionOptions(
            defaults=AgentConfig(
                provider=options.get("provider", ""),
                model=options.get("model", ""),
                max_ticks=options.get("max_ticks"),
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(abort=kind is not None)

    def use(self, *middleware: Middleware) -> None:
        """Add middleware around the procedures of all sessions, inside of what is there."""
        self.middleware = (*self.middleware, *middleware)

    def session(
        self,
        name: str = "",
        *,
        props: Mapping[str, Any] | None = None,
        callbacks: Callbacks | None = None,
    ) -> Session:
        """Return the session of a name or an id, from memory or from disk; else make one.

        Args:
            name: a whole name, or the id of an agent or of its session; empty makes a session
                without a name. A closed session of this name is left, and another one made.
            props: of the component, over those of the app's element; for a session in memory they
                are those of its next turns.
            callbacks: called after those of the app.

        Raises `UsageError` (kind ``bad-id``) for what can be no name, `SessionStateError` (kind
        ``closed``) for the id of a session that is closed, and what `create_agent` raises.
        """
        self.running.check_open()
        if not isinstance(name, str):  # the numbers by which a chat knows its users
            raise UsageError(f"the name of a session is a text, and not {name!r}", kind="bad-id")
        with self.sessions.making(name):  # two threads make one session, and restore it once
            paths, made = self._find(name) if name else None, False
            if paths is None:
                stored = self.store.load(name) if self.store is not None and name else None
                paths, made = self._create(name, props)
            if made:
                with self.sessions.making(paths.id):
                    return self._make(paths, props, callbacks, stored, is_new=True)
        return self.session_of(paths, props=props, callbacks=callbacks)

    def session_of(
        self,
        paths: AgentPaths,
        *,
        props: Mapping[str, Any] | None = None,
        callbacks: Callbacks | None = None,
        is_new: bool = False,
    ) -> Session:
        """Return the session of an agent that is there.

        Args:
            paths: of the agent.
            props: as for `session`.
            callbacks: the same.
            is_new: whether the agent was just made.
        """
        with self.sessions.making(paths.id):
            known = self.sessions.get(paths.id)
            if known is None:
                state = read_agent(paths).state
                name = state.name or state.session.id
                stored = self.store.load(name) if self.store is not None else None
                props = {**recorded_props(self._agent, state.props), **(props or {})}
                return self._make(paths, props, callbacks, stored, is_new=is_new)
        known.change(props, callbacks)
        self.sessions.touch(known)
        return known

    def _make(
        self,
        paths: AgentPaths,
        props: Mapping[str, Any] | None,
        callbacks: Callbacks | None,
        stored: Snapshot | None,
        *,
        is_new: bool,
    ) -> Session:
        """Return a session that is not in memory, with what its store has of it."""
        chosen = self._options._replace(
            callbacks=callbacks or NO_CALLBACKS, runner=self._runner_of_session()
        )
        session = Session(self, paths, self._agent, chosen, props=props)
        try:
            self._fill(session, stored, is_new=is_new)
        except BaseException:
            if is_new:
                remove_agent(self.services(), paths)
            raise
        return self.sessions.add(session)

    def run(self, input: Input, *, props: Mapping[str, Any] | None = None) -> Execution:  # noqa: A002
        """Run one prompt in a session of its own, which is removed at the end."""
        self.running.check_open()
        chosen = self._options._replace(ephemeral=True, runner=self._runner_of_session())
        paths, _ = self._create("", props, ephemeral=True)
        return Session(self, paths, self._agent, chosen, props=props).send(input)

    def close(self, *, abort: bool = False) -> None:
        """Wait until the turns of the sessions have ended, and put them out of memory.

        Afterwards no call is made any more: each raises `UsageError` (kind ``app-closed``). An
        exception during the wait, as Ctrl-C raises one, aborts the turns and passes at the end. In
        a forked child nothing is done: the turns are those of its parent.

        Args:
            abort: whether to abort the turns first.

        Raises `UsageError` (kind ``waits-for-itself``) inside of a turn of the app.
        """
        if self.running.is_forked:
            return
        self.running.close(abort=abort)
        self.sessions.close()
        for session in self.sessions:
            self._put_out(session)
            self.sessions.forget(session)

    def _runner_of_session(self) -> ExecutionRunner | None:
        """Return the runner of a session that comes into memory."""
        return self._runner() if callable(self._runner) else self._runner

    def callbacks_with(self, inner: Callbacks) -> Callbacks:
        """Return the callbacks of a session: the app's, and then `inner`."""
        return self._callbacks.merged(inner)

    def _fill(self, session: Session, stored: Snapshot | None, *, is_new: bool) -> None:
        """Give a session that comes into memory what its store has of it."""
        if is_new:
            session.callbacks().session_created()
        snapshot = None
        if stored is not None:
            applies = self._resolve is None
            snapshot = restore(session, stored, is_new=is_new, applies=applies)
        if self._resolve is not None:
            session.take_resolved(resolved(self._resolve, session, snapshot))

    def _find(self, name: str) -> AgentPaths | None:
        """Return the agent that has a name or an id; None for none, or a subagent of the name."""
        layout = self.services().layout
        try:
            paths, state = find_whole(layout, name)
        except NoSuchAgent:
            return None
        except UsageError as error:
            if error.kind != "ambiguous" or ids.is_session_id(ids.undashed(name)):
                raise
            # Closed ones and subagents may have the name as well, and ids may begin with it.
            found = lookup.find_by_key(layout, [lookup.name_key(None, name)])
            return None if found is None else found[0].paths
        is_named = state.name == name
        if is_named and state.parent is not None:
            return None
        if state.session.state is SessionState.TERMINATED:
            if is_named:
                return None
            raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
        return paths

    def _create(
        self, name: str, props: Mapping[str, Any] | None, *, ephemeral: bool = False
    ) -> tuple[AgentPaths, bool]:
        """Make an agent; return it, and False if another thread or process has made it."""
        agent, given = with_props(self._agent, props)
        config = self._options.over(config_of(agent, given))
        wanted = as_wanted(config, self._new)._replace(name=name, ephemeral=ephemeral)
        services = self.services()
        try:
            with services.disk.synced_at_end():
                return services.layout.agent(create.create_agent(services, wanted)), True
        except AgentsdirError as error:
            found = self._find(name) if name and error.kind == "already-exists" else None
            if found is None:
                raise
            return found, False

    def _put_out(self, session: Session) -> None:
        """Save a session that is put out of memory."""
        session.persist(only_if_changed=True)


def find_whole(layout: Layout, reference: str) -> tuple[AgentPaths, AgentState]:
    """Return the agent that has a name, an id, or the id of its session, and its state.

    The beginning of one is none: a program means what it says. Raises `NoSuchAgent`, and what
    `find_agent` raises.
    """
    paths = lookup.find_agent(layout, reference, whole_name=True)
    state = read_agent(paths).state
    session_id = state.session.id
    if reference not in (state.name, paths.id, session_id, ids.dashed(session_id)):
        raise NoSuchAgent(f"no agent {reference!r} in {layout.root}")
    return paths, state


def as_wanted(config: AgentConfig, new: NewAgent) -> NewAgent:
    """Return the fields of a new agent from its configuration, and from `new` what that lacks."""
    return new._replace(
        provider=config.provider_name,
        model=config.model,
        system_prompt=config.system,
        profile=config.profile,
        permission_mode=config.permission_mode,
        cwd=config.cwd or new.cwd,
        options=config.options,
        fallbacks=tuple(config.fallbacks),
        max_ticks=config.max_ticks or 0,
    )
