"""Long-term facts: how they are found, ranked and decided about."""
