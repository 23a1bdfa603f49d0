"""The clock and the source of new ids that commands use."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

from agentsdir.formats import times


class FreshIds:
    """Random ids: cuid2 for agents, messages and turns, uuid4 for sessions."""

    def agent(self) -> str:
        """Return a new cuid2."""
        from cuid2 import Cuid

        return Cuid().generate()

    def session(self) -> str:
        """Return a new uuid4 in 32 hex digits."""
        return uuid.uuid4().hex


def now() -> str:
    """Return the time in RFC 3339, to the microsecond."""
    return times.to_text(datetime.fromtimestamp(time.time(), UTC))
