"""The system prompt: named, ordered, scoped sections and how they become one text."""
