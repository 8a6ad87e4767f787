"""The user's terminal while a program in the sandbox uses it: passes keys in and filtered output out."""
