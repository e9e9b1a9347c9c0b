"""The host: registries, chains and typed seams in one place, and what a plugin is."""
