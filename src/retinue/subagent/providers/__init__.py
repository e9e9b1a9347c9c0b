"""The providers of children that ship with Retinue, one file each."""
