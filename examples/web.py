"""A chat in the browser: answers are streamed as server-sent events.

uvicorn --app-dir examples web:app
curl -N -d 'good morning' localhost:8000/ada
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentsdir import AgentConfig, AgentsdirError, AsyncApp, AsyncExecution

AGENTS = AsyncApp(AgentConfig(system="You are terse."), max_active=1000, idle_timeout=600)


async def send(request: Request) -> Response:
    """Send the body to the user's session, and stream what comes of it."""
    text = (await request.body()).decode()
    # Take the user from your authentication, and not from the path.
    session = await AGENTS.session(f"web-{request.path_params['user']}")
    return StreamingResponse(stream(session.send(text)), media_type="text/event-stream")


async def stream(execution: AsyncExecution) -> AsyncIterator[str]:
    """Yield the turn. If the browser goes away the turn goes on, and the session has its answer."""
    async for event in execution:
        yield server_sent(event["type"], event)
    try:
        result = await execution.result
    except AgentsdirError as error:
        yield server_sent("error", {"kind": error.kind, "message": error.message})
    else:
        yield server_sent("done", result.as_json())


def server_sent(kind: str, data: object) -> str:
    """Return one server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


async def refuse(_request: Request, error: Exception) -> Response:
    """Answer a request that cannot mean anything, such as one of a user without a name."""
    assert isinstance(error, AgentsdirError)
    return JSONResponse({"kind": error.kind, "message": error.message}, status_code=400)


async def stop(request: Request) -> Response:
    """End the answer that is being streamed."""
    session = await AGENTS.session(f"web-{request.path_params['user']}")
    return JSONResponse({"stopped": await session.interrupt()})


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    """Wait at the end for the turns that run."""
    async with AGENTS:
        yield


app = Starlette(
    routes=[
        Route("/{user}", send, methods=["POST"]),
        Route("/{user}", stop, methods=["DELETE"]),
    ],
    exception_handlers={AgentsdirError: refuse},
    lifespan=lifespan,
)
