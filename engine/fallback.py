"""Providers that stand in for an agent's own, when that gives no answer (decision D24).

docs/behaviour.md, "Fallback".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters import registry
from agentsdir.adapters.contract import RECORDABLE_MODES
from agentsdir.engine.native_changes import own_native, stand_in_change
from agentsdir.formats import jsontext
from agentsdir.formats.directory import ids
from agentsdir.formats.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from agentsdir.adapters.contract import Architecture
    from agentsdir.adapters.sides import Provider
    from agentsdir.engine.open_turn import OpenTurn
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.errors import AgentsdirError

# Nobody could do better than whoever said these: the prompt, the log or the root is refused, or the
# answer is given already.
_FINAL = frozenset(
    {
        "aborted",
        "bad-options",
        "max-ticks",
        "permission-mode",
        "process-left",
        "refused",
        "untrusted-root",
        "use-reset",
    }
)
MOST_STAND_INS = 10
"""How many providers stand in at most, whatever a list says."""
# Nothing was tried: the provider is not there.
_ABSENT = frozenset({"no-client", "no-provider"})


def may_stand_in(error: BaseException) -> bool:
    """Tell whether another provider may answer where one failed with `error`."""
    return isinstance(error, ProviderError) and error.kind not in _FINAL


def stand_ins(world: World, state: AgentState) -> list[str]:
    """Return who stands in for an agent's provider, in order: its own list, else the root's."""
    names = state.fallbacks or world.settings.fallbacks
    others = [name for name in dict.fromkeys(names) if name != state.session.provider_name]
    return others[:MOST_STAND_INS]


def worst(errors: list[AgentsdirError], name: str) -> AgentsdirError:
    """Return what a turn fails with when each of the chain did: the last that was tried at all.

    Args:
        errors: what each failed with; all but the last are logged already.
        name: of the last one.
    """
    tried = [error for error in errors if error.kind not in _ABSENT]
    found, last = (tried or errors)[-1], errors[-1]
    if found is last:
        return found
    message = f"{found.message}; {name} could not stand in: {last.message}"
    return ProviderError(message, hint=found.hint, kind=found.kind)


def hand_over(turn: OpenTurn, before: str, name: str, error: AgentsdirError, number: int) -> None:
    """Log that `name` takes the turn over from `before`, and under which native session.

    Args:
        error: what `before` failed with.
        number: of the attempt that begins, from 2.
    """
    reason = jsontext.clean(f"{error.kind}: {error.message}", set())
    turn.append(
        "provider.fallback", {"from": before, "to": name, "reason": reason, "attempt": number}
    )
    try:
        architecture = registry.get(name).architecture
    except UsageError:
        return  # the attempt says so itself
    native = _native_for(turn, architecture)
    if native != turn.state.native:
        with turn.writer() as writer:
            writer.append("native.changed", stand_in_change(native), turn.world.now())


def _native_for(turn: OpenTurn, architecture: str) -> dict[str, Any]:
    """Return the native session that goes on in an architecture, or begins there."""
    if turn.state.native["architecture"] == architecture:
        return turn.state.native
    own = own_native(turn.paths, turn.state)
    if own["architecture"] == architecture:
        return own
    return {**own, "architecture": architecture, "id": ids.dashed(turn.world.ids.session())}


def as_run_by(state: AgentState, architecture: Architecture, provider: Provider) -> AgentState:
    """Return an agent's state as if `architecture` were its own: what `session_spec` is given.

    The agent's model is one of its own architecture; in another, that has its default.
    """
    same = state.session.provider_name == architecture.name
    model = state.session.model if same else provider.default_model
    session = state.session.replaced(provider_name=architecture.name, model=model)
    return state.replaced(session=session)


def mode_abroad(mode: str) -> str:
    """Return the permission mode of a stand-in whose turn's sender asked for `mode`.

    What another client calls so grants nobody knows what: then it is the default.
    """
    return mode if mode in ("", *RECORDABLE_MODES) else "default"
