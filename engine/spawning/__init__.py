"""Subagents: how one is made, what its parent's log says of it, and how it goes (decision D19)."""
