"""Docker, and what speaks its API."""
