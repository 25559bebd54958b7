"""The binaries: the only code that reads flags."""
