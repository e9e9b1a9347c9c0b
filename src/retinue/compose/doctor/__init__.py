"""What is wrong with a home, and what to do about it."""
