"""Gemini CLI: its session files of all eras as blocks."""

from agentsdir.adapters.contract import Architecture
from agentsdir.adapters.gemini.reader import GeminiReader

ARCHITECTURE = Architecture(
    name="gemini",
    architecture="gemini-cli",
    summary="Gemini CLI session files and recorded stream-json output",
    reader=GeminiReader(),
)
