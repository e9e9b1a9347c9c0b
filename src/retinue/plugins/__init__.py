"""Optional features, one module or folder each. Nothing below this layer names one of them."""
