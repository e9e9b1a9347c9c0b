"""Scenarios: a folder says what is asked and what the model answers, and pins everything that comes of it."""
