"""Recordings that do not read as they should yet, and the faults that stand in the way.

A test of one that is named here may fail. Who mends a fault takes its lines out.
"""

OPEN = {
    "claude-2.1.98/agent_fg": "a queued prompt has the time at which it was taken in",
    "claude-2.1.98/queue_commands": "a queued prompt has the time at which it was taken in",
}
