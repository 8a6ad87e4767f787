"""A person's terminal while a program in the sandbox uses it: keys go in, what the program draws comes out filtered."""
