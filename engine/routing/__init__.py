"""Which agent something is for, and what is for the people behind connectors (decision D27)."""
