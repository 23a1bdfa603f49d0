"""Programs that build on sessions: App, its sessions, and what they are kept in."""
