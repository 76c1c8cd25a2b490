"""The gateway under mixed traffic and faults for a long time: `make soak`."""
