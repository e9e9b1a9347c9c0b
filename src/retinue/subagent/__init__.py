"""Delegation: providers of children, one-shot runs, and the tools through which a model delegates."""
