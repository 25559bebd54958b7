"""Worlds to act in: pure functions over pytrees, batched, usable inside a scan."""
