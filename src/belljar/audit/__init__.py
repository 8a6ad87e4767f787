"""The audit trail: written, read and verified, with secrets masked."""
