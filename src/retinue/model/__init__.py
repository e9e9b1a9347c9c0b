"""The provider-neutral vocabulary of models: content, messages, chunks, usage, the client protocol, retry."""
