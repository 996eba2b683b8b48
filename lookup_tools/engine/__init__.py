"""Adapters that run our caches in real engines; each needs its engine installed."""
