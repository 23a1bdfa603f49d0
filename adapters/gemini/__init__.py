"""Gemini CLI: its session files of all eras as blocks, and its sessions run."""

from agentsdir.adapters.contract import Architecture
from agentsdir.adapters.gemini.provider import GeminiProvider
from agentsdir.adapters.gemini.reader import GeminiReader

ARCHITECTURE = Architecture(
    name="gemini",
    architecture="gemini-cli",
    summary="Gemini CLI: reads 0.11 to 0.61, runs the real client",
    reader=GeminiReader(),
    provider=GeminiProvider(),
)
