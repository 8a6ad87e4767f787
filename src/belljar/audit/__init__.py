"""The record of what was asked, judged and run: written, read, verified, secrets masked.

May import: errors only.
"""
