"""Retinue: a Python agent harness whose heart is delegation."""

from __future__ import annotations

__version__ = "0.1.0"
