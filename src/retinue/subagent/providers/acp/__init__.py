"""The provider of external agents: programs that speak the Agent Client Protocol, as children. See decision 0018."""
