"""The command line: one module per command, each imported when it runs."""
