"""Lets the tests of all adapters import what they share: the folder holds no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
