"""Sessions, commands and their streams."""

from __future__ import annotations

import base64
import secrets
import time

from belljar.conformance.probe import (
    Failed,
    Probe,
    check,
    eventually,
    holds,
    ok,
    problem,
    read_events,
    same,
)


@check("sessions", "a session is made at once, and becomes ready")
def _(probe: Probe) -> None:
    answer = probe.http.post(
        "/v1/sessions",
        json={"metadata": {"a": "1"}, "env": {"B": "2"}, "name": "Ana's"},
    )
    made = ok(answer, 201)
    same(answer.headers.get("location"), f"/v1/sessions/{made['id']}")
    same(
        (made["metadata"], made["env"], made["name"]), ({"a": "1"}, {"B": "2"}, "Ana's")
    )
    path = f"/v1/sessions/{made['id']}"
    try:
        ready = eventually(
            lambda: _state(probe, path, "ready"), "it does not become ready", 60
        )
        holds(ready["expires"] > time.time() + 500, "its lease is not 600 seconds")
        holds(isinstance(ready["limits"]["memory"], int), "its limits are no numbers")
    finally:
        probe.http.delete(path)


def _state(probe: Probe, path: str, state: str) -> dict[str, object] | None:
    found: dict[str, object] = ok(probe.http.get(path))
    return found if found["state"] == state else None


@check("sessions", "a start that fails is a state, not an error")
def _(probe: Probe) -> None:
    answer = probe.http.post(
        "/v1/sessions", json={"image": "no-such-image"}, headers={"Prefer": "wait=60"}
    )
    made = ok(answer, 201)
    same((made["state"], made["reason"]), ("ended", "failed"))
    same(made["error"]["code"], "image_missing")


@check("sessions", "a session ends when nothing of it runs any more, and ends once")
def _(probe: Probe) -> None:
    id = probe.new_session()
    command = probe.start("sleep 600", session=id)
    ended = ok(probe.http.delete(f"/v1/sessions/{id}"))
    same((ended["state"], ended["reason"]), ("ended", "deleted"))
    same(ok(probe.http.delete(f"/v1/sessions/{id}"))["state"], "ended")
    same(
        ok(probe.http.get(f"/v1/sessions/{id}/commands/{command['id']}"))["result"][
            "cause"
        ],
        "killed",
    )
    problem(probe.command("true", session=id), 410, "session_ended")


@check("sessions", "a lease ends a session that nobody uses")
def _(probe: Probe) -> None:
    id = probe.new_session(lease=1)
    eventually(lambda: _state(probe, f"/v1/sessions/{id}", "ended"), "it does not end")
    same(ok(probe.http.get(f"/v1/sessions/{id}"))["reason"], "expired")


@check("sessions", "its lease and metadata can be changed")
def _(probe: Probe) -> None:
    id = probe.new_session(metadata={"a": "1"})
    changed = ok(
        probe.http.patch(
            f"/v1/sessions/{id}", json={"lease": 50, "metadata": {"b": "2"}}
        )
    )
    same(changed["metadata"], {"b": "2"})
    holds(abs(changed["expires"] - time.time() - 50) < 10, "expires is not now + lease")
    found = ok(probe.http.get("/v1/sessions?metadata.b=2"))["items"]
    same([each["id"] for each in found], [id])


@check("sessions", "a paused session does nothing until it goes on")
def _(probe: Probe) -> None:
    id = probe.new_session()
    same(
        ok(probe.http.patch(f"/v1/sessions/{id}", json={"paused": True}))["state"],
        "paused",
    )
    problem(
        probe.http.get(f"/v1/sessions/{id}/files?path=/etc/hostname"), 409, "not_ready"
    )
    same(
        ok(probe.http.patch(f"/v1/sessions/{id}", json={"paused": False}))["state"],
        "ready",
    )
    ok(probe.http.get(f"/v1/sessions/{id}/files?path=/etc/hostname"))


@check("sessions", "sessions are apart from each other")
def _(probe: Probe) -> None:
    name = secrets.token_hex(8)
    other = probe.new_session()
    probe.run(f"touch /tmp/{name}; sleep 300 & echo")
    seen = ok(
        probe.command(
            f"ls /tmp/{name}; ps ax 2>/dev/null | grep -c '[s]leep 300'", session=other
        )
    )
    same(seen["result"]["stdout"], "0\n" if "0" in seen["result"]["stdout"] else "")


# Commands.


@check("commands", "text runs in bash, and its streams are kept apart")
def _(probe: Probe) -> None:
    result = probe.run("echo out; echo err >&2; cd /tmp && pwd")["result"]
    same((result["stdout"], result["stderr"]), ("out\n/tmp\n", "err\n"))


@check("commands", "a list is an argument vector, and no shell reads it")
def _(probe: Probe) -> None:
    same(
        probe.run(["printf", "%s|", "a b", "$HOME", ";"])["result"]["stdout"],
        "a b|$HOME|;|",
    )


@check("commands", "a status other than 0 is an answer like any other")
def _(probe: Probe) -> None:
    ended = probe.run("exit 7")
    same((ended["exit_code"], ended["result"]["cause"]), (7, "exited"))


@check("commands", "a timeout ends it with 124")
def _(probe: Probe) -> None:
    ended = probe.run("sleep 600", timeout=1)
    same((ended["result"]["cause"], ended["exit_code"]), ("timeout", 124))


@check("commands", "what it left running is killed, and counted")
def _(probe: Probe) -> None:
    name = f"/tmp/{secrets.token_hex(6)}"
    ended = probe.run(f"while :; do echo x >> {name}; sleep 0.05; done & sleep 0.2")
    holds(
        ended["result"]["survivors_killed"] >= 1,
        f"survivors_killed: {ended['result']['survivors_killed']}",
    )
    sizes = probe.run(f"wc -c < {name}; sleep 0.5; wc -c < {name}")["result"][
        "stdout"
    ].split()
    same(sizes[0], sizes[1], "it goes on")


@check("commands", "a command of its own time is left when the client does not wait")
def _(probe: Probe) -> None:
    begun = ok(probe.command("sleep 600", wait=0), 202)
    holds(begun["state"] in ("queued", "running"), f"state: {begun['state']}")
    killed = ok(
        probe.http.delete(
            probe.path(
                "commands",
                begun["id"],
            )
            + "?grace=0"
        )
    )
    same(killed["state"], "ended")


@check("commands", "killing answers when no process of it is left")
def _(probe: Probe) -> None:
    begun = probe.start("trap '' TERM; (setsid sleep 600 &) ; sleep 600")
    killed = ok(probe.http.delete(probe.path("commands", begun["id"]) + "?grace=0"))
    same((killed["state"], killed["result"]["cause"]), ("ended", "killed"))
    same(
        ok(probe.http.delete(probe.path("commands", begun["id"])))["ended"],
        killed["ended"],
    )


@check("commands", "a signal reaches it")
def _(probe: Probe) -> None:
    begun = probe.start(
        "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    )
    eventually(lambda: _output(probe, begun["id"]) == b"ready\n", "it does not start")
    ok(
        probe.http.post(
            probe.path("commands", begun["id"], "signal"), json={"signal": "INT"}
        )
    )
    ended = probe.until(begun["id"], "ended")
    same((ended["exit_code"], ended["result"]["stdout"]), (5, "ready\ngot\n"))
    answer = probe.http.post(
        probe.path("commands", begun["id"], "signal"), json={"signal": 2}
    )
    problem(answer, 409, "conflict")


def _output(probe: Probe, id: str, **query: str | int) -> bytes:
    return bytes(
        ok(probe.http.get(probe.path("commands", id, "output"), params=query)).content
    )


@check("commands", "its input is given at once, or stays open")
def _(probe: Probe) -> None:
    same(probe.run("cat", stdin="given")["result"]["stdout"], "given")
    same(probe.run("cat", stdin="")["result"]["stdout"], "")
    same(probe.run("cat")["result"]["stdout"], "")
    begun = probe.start("cat", stdin_open=True)
    path = probe.path("commands", begun["id"], "stdin")
    ok(probe.http.post(path, content=b"one "), 204)
    ok(probe.http.post(f"{path}?close=true", content=b"two"), 204)
    same(probe.until(begun["id"], "ended")["result"]["stdout"], "one two")
    problem(probe.http.post(path, content=b"late"), 409, "conflict")


@check("commands", "a named shell remembers its directory and variables")
def _(probe: Probe) -> None:
    shell = f"s{secrets.token_hex(4)}"
    probe.run("cd /tmp; A=1; export B=2", shell=shell)
    same(probe.run('pwd; echo "$A$B"', shell=shell)["result"]["stdout"], "/tmp\n12\n")
    same(probe.run('echo "$A$B"')["result"]["stdout"], "\n")


@check("commands", "a terminal is one")
def _(probe: Probe) -> None:
    begun = ok(probe.command("tty; stty size", pty=True, size=[40, 100]), 200)
    holds(
        "/dev/" in begun["result"]["stdout"] and "40 100" in begun["result"]["stdout"],
        begun["result"]["stdout"],
    )


@check("commands", "too much output ends it if it has a limit")
def _(probe: Probe) -> None:
    ended = probe.run("head -c 1000000 /dev/zero; sleep 100", output_limit=1000)
    same(ended["result"]["cause"], "output_limit")


@check("commands", "bytes that are no text come as base64")
def _(probe: Probe) -> None:
    result = probe.run(r"printf '\377\376'")["result"]
    same(base64.b64decode(result["stdout_base64"]), b"\xff\xfe")


@check("commands", "a denied command makes nothing, and says why")
def _(probe: Probe) -> None:
    told = problem(probe.command("rm -rf /"), 403, "policy_denied")
    same((told["verdict"]["decision"], told["declined"]), ("deny", False))
    holds(told["detail"], "no reason")


@check("commands", "what is not there is told as such")
def _(probe: Probe) -> None:
    problem(probe.command(["no-such-program"]), 422, "command_not_found")
    problem(
        probe.command("true", cwd="/no/such/place"), 422, "working_directory_invalid"
    )


@check("commands", "commands run at the same time")
def _(probe: Probe) -> None:
    name = secrets.token_hex(6)
    waiting = probe.start(f"until [ -e /tmp/{name} ]; do sleep 0.05; done; echo met")
    probe.run(f"touch /tmp/{name}")
    same(probe.until(waiting["id"], "ended")["result"]["stdout"], "met\n")


@check("commands", "a list of commands says what runs")
def _(probe: Probe) -> None:
    begun = probe.start("sleep 600")
    found = ok(probe.http.get(probe.path("commands") + "?state=running&limit=200"))[
        "items"
    ]
    holds(begun["id"] in [each["id"] for each in found], "it is not listed")
    probe.http.delete(probe.path("commands", begun["id"]) + "?grace=0")


# Output and streams.


@check("output", "output is read by position, and the next position is told")
def _(probe: Probe) -> None:
    ended = probe.run("printf 0123456789")
    path = probe.path("commands", ended["id"], "output")
    answer = ok(probe.http.get(path, params={"offset": 3, "limit": 4}))
    same(answer.content, b"3456")
    told = [
        answer.headers.get(f"belljar-{name}")
        for name in ("offset", "next", "dropped", "state")
    ]
    same(told, ["3", "7", "0", "ended"])
    problem(probe.http.get(path, params={"offset": 11}), 400, "usage")


@check("output", "one stream can be left out")
def _(probe: Probe) -> None:
    ended = probe.run("echo out; echo err >&2")
    same(_output(probe, ended["id"], stream="stderr"), b"err\n")


@check("output", "a reader waits for what comes")
def _(probe: Probe) -> None:
    begun = probe.start("sleep 1; echo late")
    same(_output(probe, begun["id"], wait=20), b"late\n")


@check("streams", "a stream tells the start, all output in order, and the end")
def _(probe: Probe) -> None:
    events = probe.events(
        probe.path("commands"), command="for n in 1 2 3; do echo $n; echo e$n >&2; done"
    )
    same((events[0]["event"], events[-1]["event"]), ("started", "ended"))
    position = 0
    for event in events[1:-1]:
        data = event["data"]
        same(data["offset"], position, "a gap")
        content = (
            data["text"].encode()
            if "text" in data
            else base64.b64decode(data["base64"])
        )
        position += len(content)
        same(event["id"], str(position))
    same(position, events[-1]["data"]["command"]["bytes_produced"])
    same(events[-1]["id"], "end")


@check("streams", "a stream goes on at any byte")
def _(probe: Probe) -> None:
    ended = probe.run("printf 'aé€😀z'")
    whole = "aé€😀z".encode()
    path = probe.path("commands", ended["id"])
    for position in range(len(whole) + 1):
        events = probe.events(path, last=str(position))
        parts = [each["data"] for each in events if each["event"] == "output"]
        found = b"".join(
            p["text"].encode() if "text" in p else base64.b64decode(p["base64"])
            for p in parts
        )
        same(found, whole[position:], f"from {position}")
        holds(events[0]["event"] != "started", "it tells the start again")


@check("streams", "after the end nothing more comes, and nonsense is refused")
def _(probe: Probe) -> None:
    ended = probe.run("echo x")
    path, accept = probe.path("commands", ended["id"]), {"Accept": "text/event-stream"}
    same(
        probe.http.get(path, headers={**accept, "Last-Event-ID": "end"}).status_code,
        204,
    )
    for wrong in ("99", "-1", "x"):
        problem(
            probe.http.get(path, headers={**accept, "Last-Event-ID": wrong}),
            400,
            "usage",
        )


@check("streams", "a refusal that is known at once is no stream")
def _(probe: Probe) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = probe.http.post(
        probe.path("commands"), json={"command": "rm -rf /"}, headers=headers
    )
    problem(answer, 403, "policy_denied")


@check("streams", "a reader that leaves does not end the command, and another reads on")
def _(probe: Probe) -> None:
    headers = {"Accept": "text/event-stream"}
    body = {"command": "for n in $(seq 40); do echo $n; sleep 0.05; done"}
    with probe.http.stream(
        "POST", probe.path("commands"), json=body, headers=headers
    ) as answer:
        for event in read_events(answer.iter_lines()):
            if event["event"] == "output":
                break
        else:
            raise Failed("no output came")
    listed = ok(probe.http.get(probe.path("commands") + "?limit=1"))["items"][0]
    same(probe.until(listed["id"], "ended")["exit_code"], 0)
    text = "".join(f"{n}\n" for n in range(1, 41))
    same(_output(probe, listed["id"]).decode(), text)


@check("streams", "a slow reader holds up nobody")
def _(probe: Probe) -> None:
    begun = ok(probe.command("head -c 3000000 /dev/zero", wait=0), 202)
    with probe.http.stream(
        "GET",
        probe.path("commands", begun["id"]),
        headers={"Accept": "text/event-stream"},
    ):
        same(probe.until(begun["id"], "ended")["bytes_produced"], 3_000_000)


@check("sessions", "metadata stays small when it is changed")
def _(probe: Probe) -> None:
    body = {"metadata": {"a": "x" * 4096}}
    told = problem(probe.http.patch(probe.path(), json=body), 400, "usage")
    same(told.get("field"), "metadata")


@check("commands", "a command is found in its own session only")
def _(probe: Probe) -> None:
    running, other = probe.start("sleep 60"), probe.new_session()
    path = probe.path("commands", running["id"], session=other)
    for answer in (probe.http.get(path), probe.http.delete(path)):
        problem(answer, 404, "not_found")
    same(probe.until(running["id"], "running")["state"], "running")
    probe.http.delete(f"{probe.path('commands', running['id'])}?grace=0")
