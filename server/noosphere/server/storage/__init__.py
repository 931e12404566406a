"""Drivers behind the ports. Only ``app`` chooses among them."""

__all__: list[str] = []
