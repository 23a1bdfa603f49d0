"""The calls of a session that middleware wraps: `send`, `render`, `queue` and `spawn`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from agentsdir.engine.app.execution import Execution
    from agentsdir.engine.app.session import Session
    from agentsdir.engine.result import TurnResult

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Call:
    """One call of a procedure, as middleware sees it.

    Attributes:
        procedure: send, render, queue or spawn.
        session: whose it is.
        args: its arguments without a name; the first one of `send` and `queue` is the input.
        kwargs: its other arguments.
        context: what `with_context` gave.
        timeout: seconds that its turn may take; 0 sets no limit.
    """

    procedure: str
    session: Session
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 0

    def with_arguments(self, *args: Any, **kwargs: Any) -> Call:
        """Return the same call with other arguments."""
        return replace(self, args=args, kwargs=kwargs)


Next: TypeAlias = Callable[[Call], Any]
Middleware: TypeAlias = Callable[[Call, Next], Any]
"""Wraps a call: it calls `next` with this call or a changed one, and returns what that returned.

`next` returns when the work is done: for `send`, `render` and `spawn` the result of the turn, for
`queue` the message's id. What a middleware raises before `next` keeps the call from being made.
"""


def composed(middleware: tuple[Middleware, ...], work: Next) -> Next:
    """Return `work` wrapped by middleware, of which the first is the outermost."""
    for wrap in reversed(middleware):
        work = _wrapped(wrap, work)
    return work


def _wrapped(wrap: Middleware, work: Next) -> Next:
    return lambda call: wrap(call, work)


@dataclass(frozen=True)
class Procedure(Generic[P, R]):
    """A method of a session that can be given middleware, a context and a time limit.

    `use`, `with_context` and `with_timeout` return another procedure and leave this one as it is.
    """

    _definition: Definition[P, R]
    _session: Session
    _middleware: tuple[Middleware, ...] = ()
    _context: Mapping[str, Any] = field(default_factory=dict)
    _timeout: float = 0

    def __repr__(self) -> str:
        return f"<procedure {self._definition.name} of {self._session!r}>"

    def use(self, *middleware: Middleware) -> Procedure[P, R]:
        """Add middleware inside of what is there, and inside of the app's."""
        return replace(self, _middleware=(*self._middleware, *middleware))

    def with_context(self, **values: Any) -> Procedure[P, R]:
        """Add values that middleware and tools find as `context`."""
        return replace(self, _context={**self._context, **values})

    def with_timeout(self, seconds: float) -> Procedure[P, R]:
        """Limit the turn: after `seconds` it is ended with `TurnTimeout`; 0 sets no limit."""
        return replace(self, _timeout=seconds)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the call."""
        definition = self._definition
        # A wrong argument is an error here, and not in the thread of the turn.
        inspect.signature(definition.work).bind(*definition.given, *args, **kwargs)
        call = Call(
            definition.name, self._session, args, kwargs, self._context, max(self._timeout, 0)
        )
        return definition.begin(call, self._middleware)


class Definition(Generic[P, R]):
    """A method of the class `Session` that is a `Procedure` of each of its objects.

    Args:
        work: does the work of a call; its last arguments are those of the call.
        begin: begins a call with its own middleware.
        given: how many arguments of `work` come before those of the call.
    """

    def __init__(
        self,
        work: Callable[..., Any],
        begin: Callable[[Call, tuple[Middleware, ...]], R],
        given: int,
    ) -> None:
        self.work = work
        self.given = (None,) * given
        self.begin = begin
        self.name = work.__name__
        self.__doc__ = work.__doc__

    def __get__(self, session: Session | None, owner: type[Session]) -> Procedure[P, R]:
        if session is None:
            return self  # type: ignore[return-value] # only documentation tools ask the class
        return Procedure(self, session)


def runs_turn(
    work: Callable[Concatenate[Session, Call, Execution, P], TurnResult],
) -> Definition[P, Execution]:
    """Make a method a procedure that runs a turn of the session in a thread.

    It returns the `Execution`. Turns of one session are in the order of the calls.
    """
    return _in_thread(work, in_order=True)


def runs_beside(
    work: Callable[Concatenate[Session, Call, Execution, P], TurnResult],
) -> Definition[P, Execution]:
    """Make a method a procedure like `runs_turn`, whose turn is not one of the session."""
    return _in_thread(work, in_order=False)


def _in_thread(
    work: Callable[Concatenate[Session, Call, Execution, P], TurnResult], *, in_order: bool
) -> Definition[P, Execution]:
    def begin(call: Call, middleware: tuple[Middleware, ...]) -> Execution:
        return call.session.begin(
            call,
            middleware,
            lambda made, execution: work(made.session, made, execution, *made.args, **made.kwargs),
            in_order=in_order,
        )

    return Definition(work, begin, 3)


def runs_at_once(work: Callable[Concatenate[Session, Call, P], R]) -> Definition[P, R]:
    """Make a method a procedure that works in the thread of its caller."""

    def begin(call: Call, middleware: tuple[Middleware, ...]) -> R:
        def work_of(made: Call) -> R:
            return work(made.session, made, *made.args, **made.kwargs)

        call.session.app.sessions.touch(call.session)
        done: R = composed((*call.session.middleware, *middleware), work_of)(call)
        return done

    return Definition(work, begin, 2)
