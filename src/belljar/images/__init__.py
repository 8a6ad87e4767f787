"""The images we ship: what they hold and how they are built.

May import: resources and errors.
"""
