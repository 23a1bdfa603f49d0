"""Recordings that do not read as they should yet, and the faults that stand in the way.

A test of one that is named here may fail. Who mends a fault takes its lines out.
"""

OPEN: dict[str, str] = {}
