"""Algorithms: each is one file of pure functions on the contract in `base`."""
