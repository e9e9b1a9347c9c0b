"""Work without a person at a terminal: `run`, `resume` and `demo`."""
