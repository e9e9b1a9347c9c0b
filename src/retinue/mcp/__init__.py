"""Retinue's delegation, offered to other agents over the Model Context Protocol."""
