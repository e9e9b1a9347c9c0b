"""The tools through which a model delegates."""
