"""What the tests of this client share."""

from pathlib import Path

import pytest
from claude_client import Claude


@pytest.fixture
def client(tmp_path: Path) -> Claude:
    """Return a machine on which the client has not run yet."""
    return Claude(tmp_path)
