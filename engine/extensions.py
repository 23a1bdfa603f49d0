"""What a program that uses the library adds to the turns of an agent."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from agentsdir.adapters.protocol import Decision, ToolCall, runner_methods_of
from agentsdir.engine.callbacks import NO_CALLBACKS, Callbacks, LoggedSession, SessionCallbacks
from agentsdir.engine.lookup import parent_of
from agentsdir.engine.runner import overrides
from agentsdir.engine.tools import ToolOutput, as_output, failed
from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError, Terminated, UsageError
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from agentsdir.adapters.protocol import Provider, ToolRequest
    from agentsdir.engine.runner import ExecutionRunner, SessionRef
    from agentsdir.engine.services import Services
    from agentsdir.engine.timeline import Timeline
    from agentsdir.engine.tools import Tool
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState


def no_spawn(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise `UsageError` (kind ``no-spawn``): the turn is not one of an app's session."""
    raise UsageError("only the tools of an app's session can spawn", kind="no-spawn")


class Extensions(NamedTuple):
    """What is added to the turns of one agent.

    Attributes:
        callbacks: called while they run.
        tools: by their name, which the model may call.
        runner: around the model and its tool calls.
        session: what callbacks and the runner see of the session; None makes one of the log.
        spawn: what tools spawn with.
        queued: the ids of messages that the program has left in the inbox, and waits for none of
            them. Their turns have the callbacks where they run before the one that is wanted; those
            of other messages have none there.
        context: values that the program gives its tools for these turns.
        timeline: of the agent, so that a model's context is read on; None reads the log anew.
    """

    callbacks: Callbacks = NO_CALLBACKS
    tools: Mapping[str, Tool] = MappingProxyType({})
    runner: ExecutionRunner | None = None
    session: SessionRef | None = None
    spawn: Callable[..., Any] = no_spawn
    queued: Container[str] = ()
    context: Mapping[str, Any] = MappingProxyType({})
    timeline: Timeline | None = None

    def session_callbacks(self, services: Services, paths: AgentPaths) -> SessionCallbacks:
        """Return the callbacks with what becomes of their failures."""
        session = self.session or LoggedSession(paths)
        return SessionCallbacks(self.callbacks, services, paths, session)


NO_EXTENSIONS = Extensions()


def check_runner(layout: Layout, state: AgentState, extensions: Extensions) -> None:
    """Raise `UsageError` unless the turns of an agent may run with a runner, or without one.

    Its kind is ``no-runner`` where the log names another one, or that of an agent above a subagent
    names one and there is none: its sandbox would be missing. It is ``bad-runner`` for a runner
    without a name.
    """
    runner = extensions.runner
    if runner is not None and not runner.name:
        raise UsageError(f"{type(runner).__name__} has no name", kind="bad-runner")
    needed = state.runner
    if runner is None and not needed:
        needed = _runner_above(layout, state)
    if needed and (runner is None or runner.name != needed):
        raise UsageError(
            f"agent {state.agent_id} runs in the execution runner {needed!r:.100}",
            hint="only a program that has this runner can run its turns",
            kind="no-runner",
        )


def _runner_above(layout: Layout, state: AgentState) -> str:
    """Return the runner of the nearest agent above a subagent that has one; empty for none."""
    seen = {state.agent_id}
    with suppress(AgentsdirError):  # one is gone, or damaged
        while (parent := parent_of(layout, state)) is not None and parent.id not in seen:
            seen.add(parent.id)
            state = read_agent(parent).state
            if state.runner:
                return state.runner
    return ""


def inherited(extensions: Extensions) -> Extensions:
    """Return what the turns of a spawned agent get: the runner, and the tools that it is for."""
    if extensions.runner is None:
        return NO_EXTENSIONS
    return Extensions(tools=extensions.tools, runner=extensions.runner)


def decision_of(runner: ExecutionRunner, request: ToolRequest) -> Decision:
    """Return what a runner makes of a call that a client carries out itself.

    What it passes on is allowed, with the input as it left it; `next` returns at once, as the
    result is not known yet. For a call that it does not pass on, or fails at, the model gets what
    it returned, or how it failed, as the reason of a denial.
    """
    call = ToolCall(request.tool_name, deepcopy(request.input), request.tool_use_id)
    passed_on = False

    def proceed() -> ToolOutput:
        nonlocal passed_on
        passed_on = True
        return ToolOutput("")

    try:
        output = as_output(runner.execute_tool_call(call, None, proceed))
    except Terminated:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001, the model is to read it
        return Decision(allowed=False, reason=failed(error).output)
    if passed_on:
        return Decision(allowed=True, input=None if call.input == request.input else call.input)
    said = output.output
    text = said if isinstance(said, str) else jsontext.encode(said).decode()
    return Decision(allowed=False, reason=text)


def check_provider(name: str, provider: Provider, extensions: Extensions) -> None:
    """Raise `UsageError` for what a provider cannot do with a runner, or with tools.

    Its kind is ``runner-unsupported`` for a runner with a method that the provider does not honour,
    ``tools-unsupported`` for tools that its model cannot be given.
    """
    if extensions.tools and (provider.runs_program or not runner_methods_of(provider)):
        raise UsageError(
            f"the provider {name!r} cannot be given tools of a program", kind="tools-unsupported"
        )
    if extensions.runner is None:
        return
    asked = overrides(extensions.runner) & {"prepare_model_input", "execute_tool_call"}
    if missing := sorted(asked - runner_methods_of(provider)):
        raise UsageError(
            f"the provider {name!r} does not honour {', '.join(missing)} of the runner "
            f"{extensions.runner.name!r:.100}",
            kind="runner-unsupported",
        )
