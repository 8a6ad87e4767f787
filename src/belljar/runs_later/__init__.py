"""Files that the host runs later without being asked: git's hooks, editors' tasks, agents' settings, CI jobs.

A command that writes one acts outside its sandbox at the user's next `git commit`. So a result lists them
(`runs_later`), and an apply holds them back until somebody says yes to each.

    runs.txt    which files, how each is read, who runs it
    git.py      which files in a git directory
    values.py   what a file says that can run something: a change of anything else is harmless
    ground.py   where links and settings of this workspace lead: there, too, files are run
    watch.py    what commands changed of all that in a live workspace

Only what runs unasked counts: a Makefile, a test or a package's scripts are run on purpose. Live, copied and staged
workspaces use the same table and the same `Ground`. It may import `workspace` and what is below.
"""
