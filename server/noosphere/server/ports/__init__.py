"""The ports: what the services need from the world, as protocols. Drivers live in ``storage``."""
