"""Exactness of gateways in the cases in which they differ: `make bench-exactness`."""
