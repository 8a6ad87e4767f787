"""`belljar serve`: sessions, commands and approvals over HTTP, for many keys and tenants.

A surface: it parses, calls and prints. What may run, how and with which limits is decided below it.

    serve.py      the process: addresses, TLS, signals          app.py        the ASGI application and its routes
    service.py    everything a running service holds            routes.py     how a request becomes a call
    keys.py       tenants, keys, scopes, quotas, logins         storage.py    tables, SQLite and PostgreSQL
    sessions.py   the life of sessions                          commands.py   the life of commands
    log.py        a command's output on disk, by position       approvals.py  questions that wait for a person
    events.py     what a screen follows                         audit.py      a trail for each tenant

May import: everything below `surfaces`. The dashboard (`dashboard/`) is mounted by app.py and uses `service.py` only.
"""
