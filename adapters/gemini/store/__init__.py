"""The folders in which Gemini CLI keeps its sessions: what is there, and putting more there."""
