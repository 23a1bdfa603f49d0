"""The library for asyncio: what waits is awaited, and turns run in threads all the same."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from gates import ECHO, GATED, LONG, Gate, wait_for

from agentsdir import AsyncApp
from agentsdir.formats.errors import Interruption, UsageError


def test_many_tasks_send_iterate_and_await_in_one_loop(tmp_path: Path) -> None:
    """Each has its own session, or a share of one; each result is that of its send."""

    async def talk(app: AsyncApp, number: int) -> list[str]:
        session = await app.session(f"user-{number % 10}")
        execution = session.send(f"hello {number}")
        kinds = [event["type"] async for event in execution]
        assert kinds[0] == "block_complete"
        assert kinds[-1] == "metadata_update"
        result = await execution.result
        assert (await execution.result) is result
        assert execution.is_done
        assert execution.id == result.turn_id
        return [result.response]

    async def main() -> list[list[str]]:
        async with AsyncApp(ECHO, root=tmp_path) as app:
            return await asyncio.gather(*(talk(app, number) for number in range(30)))

    assert asyncio.run(main()) == [[f"hello {number}"] for number in range(30)]


def test_procedures_and_waits_of_the_threads_are_there(tmp_path: Path, gate: Gate) -> None:
    """Middleware, contexts, time limits; queue, render, spawn, interrupt, run, close."""
    seen: list[dict[str, Any]] = []

    def notes(call: Any, next_: Any) -> Any:
        seen.append(dict(call.context))
        return next_(call)

    async def main() -> None:
        async with AsyncApp(GATED, root=tmp_path) as app:
            session = await app.session("one")
            send = session.send.use(notes).with_context(user="u")
            running = send.with_timeout(LONG)("first")
            await asyncio.to_thread(gate.wait_for, "first")
            assert session.status == "running"
            await session.queue("second")
            assert await session.interrupt(reason="enough")
            with pytest.raises(Interruption):
                await running.result
            gate.go()
            assert (await session.render().result).response == "second"
            assert (await session.spawn(ECHO, "child").result).response == "child"
            assert (await (await app.run("alone")).result).response == "alone"
            assert await session.interrupt() is False
            await session.close()
            assert session.status == "closed"

    asyncio.run(main())
    assert seen == [{"user": "u"}]


def test_a_task_that_is_cancelled_leaves_the_turn_alone(tmp_path: Path, gate: Gate) -> None:
    """One that waits for the result, one that iterates, and one whose time is over."""

    async def main() -> None:
        async with AsyncApp(GATED, root=tmp_path) as app:
            execution = (await app.session()).send("long")

            async def result() -> Any:
                return await execution.result

            async def events() -> list[Any]:
                return [event async for event in execution]

            tasks = [asyncio.create_task(result()), asyncio.create_task(events())]
            await asyncio.to_thread(gate.wait_for, "long")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(execution.result, 0.01)
            assert not execution.is_done
            gate.go()
            assert (await execution.result).response == "long"
            await wait_until(lambda: not execution.execution._listeners)

    asyncio.run(main())


async def wait_until(ready: Any) -> None:
    """Poll in a loop until something is so."""
    await asyncio.to_thread(wait_for, ready)


def test_an_iteration_that_is_left_early_leaves_nothing_behind(tmp_path: Path, gate: Gate) -> None:
    """Another one has all events from the first."""

    async def main() -> None:
        async with AsyncApp(GATED, root=tmp_path) as app:
            execution = (await app.session()).send("long")
            async for _ in execution:
                break
            await wait_until(lambda: not execution.execution._listeners)
            gate.go()
            assert len([event async for event in execution]) > 1
            assert not execution.execution._listeners

    asyncio.run(main())


def test_a_turn_outlives_the_loop_that_began_it(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised or noted in its thread, and another loop has its result."""

    async def begin() -> Any:
        app = AsyncApp(GATED, root=tmp_path)
        execution = (await app.session()).send("long")
        _ = execution.result  # asked for, and never awaited
        task = asyncio.create_task(_first_two(execution))
        await asyncio.to_thread(gate.wait_for, "long")
        assert not task.done()
        return app, execution

    async def end(app: AsyncApp, execution: Any) -> Any:
        async with app:
            return await execution.result

    app, execution = asyncio.run(begin())
    gate.go()
    assert asyncio.run(end(app, execution)).response == "long"
    assert caplog.records == []


async def _first_two(execution: Any) -> None:
    async for _ in execution:
        pass


def test_an_exception_that_leaves_the_block_aborts_the_turns(tmp_path: Path, gate: Gate) -> None:
    """As without asyncio; a block that ends otherwise waits for them."""
    begun: list[Any] = []

    async def main() -> None:
        async with AsyncApp(GATED, root=tmp_path) as app:
            begun.append((await app.session()).send("long"))
            await asyncio.to_thread(gate.wait_for, "long")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    with pytest.raises(Interruption):
        begun[0].execution.wait(LONG)


def test_a_turn_that_fails_raises_where_it_is_awaited_and_nowhere_else(tmp_path: Path) -> None:
    """An error that nothing awaits is not noted."""

    async def main() -> None:
        async with AsyncApp(ECHO, root=tmp_path) as app:
            session = await app.session()
            failed = session.send([])
            with pytest.raises(UsageError):
                await failed.result
            session.send([])
            assert [event async for event in session.send([])] == []

    asyncio.run(main())


def test_no_thread_of_a_turn_is_left_behind(tmp_path: Path) -> None:
    """After the app is closed, and the loop with it."""
    before = set(threading.enumerate())

    async def main() -> None:
        async with AsyncApp(ECHO, root=tmp_path) as app:
            await (await app.session()).send("hi").result

    asyncio.run(main())
    wait_for(lambda: set(threading.enumerate()) <= before)
