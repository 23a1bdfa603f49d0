"""Lets the corpus tests import what they share: the folder holds no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# The oracle of what a file says is the unit tests', too.
sys.path.insert(1, str(Path(__file__).parents[1] / "adapters" / "gemini"))
