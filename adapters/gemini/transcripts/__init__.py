"""Files and output of Gemini CLI to blocks."""
