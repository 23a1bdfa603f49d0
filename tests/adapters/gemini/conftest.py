"""What the tests of this client share."""

from pathlib import Path

import pytest
from gemini_client import Gemini


@pytest.fixture
def client(tmp_path: Path) -> Gemini:
    """Return a machine on which the client has not run yet."""
    return Gemini(tmp_path)
