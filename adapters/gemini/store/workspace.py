"""What a profile puts into a workspace for Gemini CLI (seed: setupAgentProfile)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Profile


def workspace_files(profile: Profile) -> Mapping[str, bytes]:
    """Return the files by their paths in the workspace: instructions, skills and agents."""
    files = {f".gemini/skills/{name}": data for name, data in profile.skills.items()}
    files |= {f".gemini/agents/{name}": data for name, data in profile.agents.items()}
    if profile.instructions:
        files["GEMINI.md"] = profile.instructions.encode()
    return files
