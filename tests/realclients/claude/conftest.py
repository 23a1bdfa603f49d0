"""The fixtures of the tests with Claude Code, which ``AGENTSDIR_TEST_CLAUDE`` names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for what these tests share

from claude_api import ClaudeApi
from claude_desk import ClaudeDesk

from fixtures import fixtures

api, desk_of, desk, any_desk, last_desk = fixtures("AGENTSDIR_TEST_CLAUDE", ClaudeApi, ClaudeDesk)
