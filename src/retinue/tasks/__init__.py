"""Background tasks: work of one agent that outlives the call which started it, and the tools to collect and stop it."""
