"""The steps of the gate: what is done about every call, one idea each."""
