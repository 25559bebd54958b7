"""The linear path: exact posteriors, the paper's bandits, and its theory as code."""
