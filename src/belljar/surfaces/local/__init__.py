"""The local server: a user's own, which carries out command lines in processes that are ready.

    client.c     the program `belljar`: hands its command line over, or becomes belljar-python
    meeting.py   where both meet, what they say, and how each makes sure who the other is
    server.py    answers, forks a worker for each command line, keeps a few with a sandbox that waits
    worker.py    one command line, as the client would have run it: its descriptors, directory, variables
    serving.py   `belljar serve --local`: starting and stopping

A worker is a process of its own and used once. So nothing of a client is left in the next one, and what a command line
does is what it does anywhere: the worker calls the same `main`. May import: cli and all that it may.
"""
