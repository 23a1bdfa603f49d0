"""The same app, sessions and executions for asyncio: what waits is awaited.

Turns run in threads as they do without asyncio; middleware, callbacks and handlers of tools are
plain functions, which are called there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping

    from agentsdir.engine.app.app import BaseApp
    from agentsdir.engine.app.execution import Execution
    from agentsdir.engine.app.procedures import Middleware, Procedure
    from agentsdir.engine.app.prompt import Input
    from agentsdir.engine.app.session import Session
    from agentsdir.engine.callbacks import Callbacks
    from agentsdir.engine.result import TurnResult
    from agentsdir.formats.blocks import StreamEvent

P = ParamSpec("P")


class AsyncExecution:
    """An `Execution` whose events and result are awaited.

    Attributes:
        execution: the same one for threads.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    @property
    def id(self) -> str | None:
        """The id of the turn; None until it has begun."""
        return self.execution.id

    @property
    def is_done(self) -> bool:
        """Whether the turn has ended."""
        return self.execution.is_done

    @property
    def result(self) -> Awaitable[TurnResult]:
        """The result, to be awaited; it raises what `Execution.result` raises.

        A task that is cancelled while it waits does not end the turn.
        """
        self.execution.check_can_wait()
        return asyncio.wrap_future(self.execution.future)

    def abort(self, reason: str = "") -> None:
        """Ask the turn to end, as `Execution.abort` does; also in a task that is cancelled."""
        self.execution.abort(reason)

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
                loop.call_soon_threadsafe(changed.set)

        seen = 0
        with self.execution.watched(tell):
            while True:
                changed.clear()
                is_done = self.execution.is_done
                new = self.execution.events_from(seen)
                for event in new:
                    yield event
                seen += len(new)
                if new:
                    continue
                if is_done:
                    return
                with self.execution.awaited():
                    await changed.wait()


class AsyncProcedure(Generic[P]):
    """A `Procedure` that returns an `AsyncExecution`."""

    def __init__(self, procedure: Procedure[P, Execution]) -> None:
        self._procedure = procedure

    def use(self, *middleware: Middleware) -> AsyncProcedure[P]:
        """Add middleware, as `Procedure.use` does."""
        return AsyncProcedure(self._procedure.use(*middleware))

    def with_context(self, **values: Any) -> AsyncProcedure[P]:
        """Add values to the context, as `Procedure.with_context` does."""
        return AsyncProcedure(self._procedure.with_context(**values))

    def with_timeout(self, seconds: float) -> AsyncProcedure[P]:
        """Limit the turn, as `Procedure.with_timeout` does."""
        return AsyncProcedure(self._procedure.with_timeout(seconds))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncExecution:
        """Make the call."""
        return AsyncExecution(self._procedure(*args, **kwargs))


class AsyncSession:
    """A `Session` whose waits are awaited.

    Attributes:
        session: the same one for threads, with all that it has; what is not here is brief.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.send = AsyncProcedure(session.send)
        self.render = AsyncProcedure(session.render)
        self.spawn = AsyncProcedure(session.spawn)

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self.session.id

    @property
    def status(self) -> str:
        """It is ``idle``, ``running`` or ``closed``."""
        return self.session.status

    async def queue(self, input: Input) -> str:  # noqa: A002, the word of `Session.queue`
        """Put a message into the inbox; return its id."""
        return await asyncio.to_thread(self.session.queue, input)

    async def interrupt(self, message: Input | None = None, reason: str = "") -> bool:
        """Ask the turn that runs to end; return whether any runs."""
        return await asyncio.to_thread(self.session.interrupt, message, reason)

    async def close(self) -> None:
        """Close the session and its children for good."""
        await asyncio.to_thread(self.session.close)


class BaseAsyncApp:
    """An `App` whose sessions are those of asyncio.

    Attributes:
        app: the same one for threads.
    """

    def __init__(self, app: BaseApp) -> None:
        self.app = app

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(abort=kind is not None)

    async def session(
        self,
        name: str = "",
        *,
        props: Mapping[str, Any] | None = None,
        callbacks: Callbacks | None = None,
    ) -> AsyncSession:
        """Return the session of a name or an id, or make one (`App.session`)."""
        return AsyncSession(
            await asyncio.to_thread(self.app.session, name, props=props, callbacks=callbacks)
        )

    async def run(
        self,
        input: Input,  # noqa: A002, the word of `App.run`
        *,
        props: Mapping[str, Any] | None = None,
    ) -> AsyncExecution:
        """Run one prompt in a session of its own, which is removed at the end."""
        return AsyncExecution(await asyncio.to_thread(self.app.run, input, props=props))

    async def close(self, *, abort: bool = False) -> None:
        """Wait until the turns of the sessions have ended, as `App.close` does."""
        await asyncio.to_thread(self.app.close, abort=abort)
