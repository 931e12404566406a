"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""
