"""From configuration to a running host, and the Python interface on top of it."""
