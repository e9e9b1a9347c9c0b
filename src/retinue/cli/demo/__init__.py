"""`retinue demo`: a scripted model that delegates real work on a copy of a small tree of files."""
