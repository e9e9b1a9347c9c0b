"""Read-only views: text made from stored logs alone."""
