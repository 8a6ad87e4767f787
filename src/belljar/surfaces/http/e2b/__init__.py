"""E2B's wire, for programs that were written for E2B: `belljar serve --e2b HOST:PORT`.

    E2B_API_URL=http://127.0.0.1:PORT E2B_SANDBOX_URL=http://127.0.0.1:PORT E2B_API_KEY=bj_…

A sandbox of E2B is a session of ours whose user is `user` with the home /home/user. What E2B's servers do in two places
(the API, and a daemon in each sandbox) is one address here: headers say which sandbox is meant.

    sandboxes.py   a sandbox as E2B shows it, and what a caller may do with it
    control.py     the API: create, list, pause, snapshots …        processes.py   commands and terminals
    connect.py     the protocol of the calls to a sandbox           filesystem.py  files, and watching them
    app.py         who asks, and the routes

Commands are judged like all others. A denied one ends with status 126 and says why on stderr; there is nobody to ask in
this protocol, so what would need an approval is denied.
"""
