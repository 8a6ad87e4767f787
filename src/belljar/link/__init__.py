"""The connection between the host and a sandbox's init: frames, transports, and the commands that run over it."""
