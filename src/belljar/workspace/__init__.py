"""The workspace: the caller's directory, pinned, id-mapped into the sandbox, and read by the host without trust."""
