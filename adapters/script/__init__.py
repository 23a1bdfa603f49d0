"""`script`: plays a file of recorded stream events, tool calls and timing included."""

from __future__ import annotations

from agentsdir.adapters.contract import Architecture
from agentsdir.adapters.recorded import RecordedReader
from agentsdir.adapters.script.provider import ScriptProvider

ARCHITECTURE = Architecture(
    name="script",
    architecture="script",
    summary="plays a file of stream events: the fake provider for tests and CI",
    reader=RecordedReader(),
    provider=ScriptProvider(),
)
