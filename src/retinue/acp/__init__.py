"""The Agent Client Protocol: Retinue in editors and other programs that speak it."""
