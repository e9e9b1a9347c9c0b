"""Stores of sessions: each implements the contract in `session/store.py`. Nothing outside knows a database binding."""
