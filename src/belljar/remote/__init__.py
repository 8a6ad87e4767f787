"""A `Box` whose sandbox is at a service (`belljar serve`): the same names over HTTP. `belljar.connect` makes the host.

    host         what `connect` gives: sessions, what is kept, approvals
    wire         requests, retries, problems as errors, streams of events that go on where they were cut
    box          `RemoteSession`, and its commands (command), shells (shells), files and staged changes

Judging, the audit trail and the link are the service's. May import: session and all below it; needs httpx.
"""
