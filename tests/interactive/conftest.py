"""Tests over recorded full-screen sessions; the log of the keys typed says what must come out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
