"""The state transition controller: archives, compresses or drops what a session no longer needs, with reasons."""
