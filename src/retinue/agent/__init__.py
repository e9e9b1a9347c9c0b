"""The agent: one driver per session. Phases, the turn and step loop, requests, the registry of live agents."""
