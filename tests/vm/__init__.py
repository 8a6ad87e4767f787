"""A virtual machine with control groups version 2, systemd and current engines: `make vm-test`."""
