"""Property tests here are deterministic."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile(
    "agentsdir", deadline=None, derandomize=True, database=None, max_examples=100
)
settings.load_profile("agentsdir")
