"""Tools: what one is, how a typed function becomes one, who sees which, how a call runs and how calls overlap."""
