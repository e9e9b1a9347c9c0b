"""Clients for model providers: each maps the neutral vocabulary to one wire format and does nothing else."""
