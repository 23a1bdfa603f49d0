"""The fixtures of the tests with Gemini CLI, which ``AGENTSDIR_TEST_GEMINI`` names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for what these tests share

from gemini_api import GeminiApi
from gemini_desk import GeminiDesk

from fixtures import fixtures

api, desk_of, desk, any_desk, last_desk = fixtures("AGENTSDIR_TEST_GEMINI", GeminiApi, GeminiDesk)
