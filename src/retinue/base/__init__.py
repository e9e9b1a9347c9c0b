"""Ground layer: ids, JSON, scopes, chains, signals and the clock. It knows no domain word."""
