"""For tests of what is built with Retinue: a scripted model, a clock that stands still, faults, a host that checks."""
