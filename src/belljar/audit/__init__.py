"""The audit trail: written, read and verified, with secrets masked.

May import: errors only.
"""
