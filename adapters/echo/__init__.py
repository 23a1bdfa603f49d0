"""`echo`: the embedded provider that needs no key and answers with the prompt."""

from __future__ import annotations

from agentsdir.adapters.contract import Architecture
from agentsdir.adapters.echo.provider import EchoProvider
from agentsdir.adapters.recorded import RecordedReader

ARCHITECTURE = Architecture(
    name="echo",
    architecture="echo",
    summary="answers every prompt with itself; offline and deterministic",
    reader=RecordedReader(),
    provider=EchoProvider(),
)
