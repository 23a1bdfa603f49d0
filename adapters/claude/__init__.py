"""Claude Code and the Claude Agent SDK."""

from agentsdir.adapters.claude.reader import ClaudeReader
from agentsdir.adapters.claude.run import ClaudeProvider
from agentsdir.adapters.protocol import Architecture

ARCHITECTURE = Architecture(
    name="claude",
    architecture="claude-agent-sdk",
    summary="Claude Code and Claude Agent SDK: reads 1.0 to 2.1, runs the real client",
    reader=ClaudeReader(),
    provider=ClaudeProvider(),
)
