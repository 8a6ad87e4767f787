"""Agent frameworks on Belljar: one module for each, imported by its framework alone.

An adapter is thin: it opens sessions with the framework's options and translates calls, results and errors. `boxes` is
what they share. README.md beside this says how each is used, what works, and what the framework's own suite says.

May import: everything but the surfaces. Adapters do not import each other.
"""
