"""Sessions: one sandbox each, and the commands, shells, files and results in it; the pool of warm sandboxes."""
