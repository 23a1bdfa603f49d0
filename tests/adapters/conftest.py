"""Lets the tests of all adapters import what they share: the folders hold no packages."""

import sys
from pathlib import Path

for _folder in (".", "claude", "gemini"):
    sys.path.insert(0, str(Path(__file__).parent / _folder))
