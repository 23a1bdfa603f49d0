"""Gemini CLI: reads its session files of all versions, and runs its sessions."""

from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.adapters.gemini.run import GeminiProvider
from agentsdir.adapters.protocol import Architecture

ARCHITECTURE = Architecture(
    name="gemini",
    architecture="gemini-cli",
    summary="Gemini CLI: reads 0.11 to 0.61, runs the real client",
    reader=GeminiReader(),
    provider=GeminiProvider(),
)
