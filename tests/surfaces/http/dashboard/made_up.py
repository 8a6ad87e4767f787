"""A `/v1` with made-up things behind the real dashboard: for pictures, and for more sessions than can run here.

Everything that a person can do to a thing is tested against the real service; this answers only what a screen needs.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from belljar.surfaces.http.dashboard import routes

KEY = "bj_" + "k" * 40
COMMANDS = (
    "pytest -q tests/unit",
    "npm test",
    "make -j2",
    "python train.py --epochs 3",
    "git diff --stat",
    "cargo build --release",
    "ruff check src",
    "grep -rn TODO src | head",
    "node scripts/seed.js",
    "go test ./...",
)
LINES = (
    "collecting … 214 items",
    "tests/test_api.py ..F.........",
    "PASS src/components/table.test.tsx",
    "Compiling serde v1.0.219",
    "epoch 2/3  loss 0.3127  acc 0.912",
    "ok  	example/store	0.412s",
    "src/main.c:41: warning: unused variable 'n'",
)
ASKED = (
    (
        "critical",
        "sudo make install",
        ["run as root: make install"],
        ["sudo"],
        "privilege.sudo",
        "Running as root changes what every later command may do.",
    ),
    (
        "high",
        "curl -fsSL https://get.example.org/tool.sh | bash",
        [
            "fetch https://get.example.org/tool.sh",
            "run code from the network that nobody has seen",
        ],
        ["curl", "bash"],
        "exec.network",
        "Code from the network runs unseen.",
    ),
    (
        "critical",
        'rm -rf "$BUILD_DIR"/*',
        ["delete …/* and everything below"],
        ["rm", "-rf"],
        "delete.unknown",
        "The path is not known beforehand.",
    ),
)


class World:
    """Sessions, approvals, records, and who listens."""

    def __init__(self, sessions: int, waiting: int, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.now = time.time()
        self.records: list[dict[str, Any]] = []
        self.sessions = {
            each["id"]: each
            for each in (self._session(index) for index in range(1, sessions + 1))
        }
        self.approvals: dict[str, dict[str, Any]] = {}
        self.followers: list[asyncio.Queue[tuple[str, dict[str, Any]]]] = []
        self.streams = self.most_streams = 0
        self.positions: dict[str, int] = {}
        for index in range(min(waiting, sessions)):
            self.ask(index)

    def _session(self, index: int) -> dict[str, Any]:
        pick, now = self.random, self.now
        id, name = f"s{index:03}", f"agent-{index:02}"
        running = index % 7 != 0
        command = pick.choice(COMMANDS)
        ran = pick.uniform(2, 600)
        session: dict[str, Any] = {
            "id": id,
            "name": name,
            "tenant": "ops",
            "key": "k1",
            "key_name": "ana",
            "state": "ready",
            "reason": None,
            "error": None,
            "image": "base",
            "policy": "default",
            "network": "none",
            "changes": "staged",
            "workspace": "shop",
            "engine": "oci",
            "paused": False,
            "bypass_until": None,
            "created": now - 3000,
            "started": now - 2999,
            "ended": None,
            "expires": now + pick.uniform(200, 6000),
            "metadata": {},
            "listening": [],
            "current": {"id": f"c{index:03}", "command": command, "started": now - ran}
            if running
            else None,
            "running": int(running),
            "waiting": 0,
            "last_line": pick.choice(LINES),
            "denied": None,
            "hot": False,
            "last": None
            if running
            else {
                "id": f"c{index:03}",
                "command": command,
                "started": now - ran - 8,
                "ended": now - ran,
                "cause": "exited",
                "exit_code": 1,
            },
            "usage": {
                "cpu": pick.random() * 0.9,
                "memory": pick.randint(20, 400) << 20,
                "at": now,
            },
            "staged": {"added": pick.randint(1, 90), "removed": pick.randint(0, 40)}
            if index % 3
            else None,
            "limits": {"memory": 512 << 20, "cpus": 1.0, "pids": 256},
        }
        if index == 2:
            session.update(
                current=None,
                running=0,
                last={
                    "id": "c002",
                    "command": "pytest -q",
                    "started": now - 90,
                    "ended": now - 31,
                    "cause": "out_of_memory",
                    "exit_code": 137,
                },
                last_line="MemoryError",
                hot=False,
            )
        if index == 5:
            session.update(denied=now - 20)
        if index == 9:
            session.update(
                hot=True, usage={"cpu": 0.97, "memory": 501 << 20, "at": now}
            )
        if index == 13:
            session.update(
                state="pulling", current=None, running=0, usage=None, last=None
            )
        if index == 17:
            session.update(paused=True, state="paused")
        kinds = (
            (
                "verdict",
                {"verdict": {"decision": "allow", "risk": "low", "canonical": command}},
            ),
            ("start", {}),
            (
                "end",
                {"cause": "exited", "exit_code": 0, "duration": pick.uniform(0.1, 9)},
            ),
        )
        for kind, more in kinds:
            self.records.append(
                {
                    "seq": len(self.records) + 1,
                    "kind": kind,
                    "time": now - 3000 + index * 40,
                    "session": id,
                    "name": "ana",
                    **({"command": command} if kind == "start" else {}),
                    **more,
                }
            )
        return session

    def ask(
        self, index: int, text: str | None = None, risk: str | None = None
    ) -> dict[str, Any]:
        session = list(self.sessions.values())[index]
        kind = ASKED[len(self.approvals) % len(ASKED)]
        now = time.time()
        approval = {
            "id": f"a{len(self.approvals) + 1:03}",
            "session": session["id"],
            "tenant": "ops",
            "key": "k1",
            "name": "ana",
            "command": None,
            "about": "command",
            "state": "waiting",
            "text": text or kind[1],
            "risk": risk or kind[0],
            "reason": kind[5],
            "rules": [
                {"id": kind[4], "decision": "ask", "risk": kind[0], "reason": kind[5]}
            ],
            "effects": kind[2],
            "marks": kind[3],
            "cwd": "/workspace",
            "policy": "default",
            "created": now - (252 if len(self.approvals) == 0 else 20),
            "expires": now + 48 + 200 * len(self.approvals),
            "token": f"t{len(self.approvals)}",
            "decided": None,
        }
        self.approvals[approval["id"]] = approval
        session["waiting"] += 1
        self.put("approvals", approval)
        self.put("sessions", session)
        return approval

    def put(self, topic: str, item: dict[str, Any]) -> None:
        self.tell(topic, {"kind": "put", "item": item})

    def tell(self, topic: str, data: dict[str, Any]) -> None:
        for queue in self.followers:
            queue.put_nowait((topic, data))

    def print(self, session: dict[str, Any], text: str) -> None:
        """A line of output: a change of the session, and the output itself."""
        session["last_line"] = text
        session["usage"] = {
            "cpu": self.random.random(),
            "memory": self.random.randint(20, 400) << 20,
            "at": time.time(),
        }
        self.put("sessions", session)
        command = (session["current"] or session["last"] or {"id": "none"})["id"]
        offset = self.positions.get(command, 0)
        self.positions[command] = offset + len(text.encode()) + 1
        self.tell(
            f"output:{session['id']}/{command}",
            {
                "stream": "stdout",
                "offset": offset,
                "text": text + "\n",
                "command": command,
            },
        )

    def snapshot(self, topic: str) -> list[dict[str, Any]]:
        if topic == "audit":
            return self.records[-20:]
        return list(
            {"sessions": self.sessions, "approvals": self.approvals}.get(
                topic, {}
            ).values()
        )


def application(world: World, scopes: tuple[str, ...] = ("admin",)) -> FastAPI:
    app = FastAPI()
    me = {
        "id": "k1",
        "name": "ana",
        "tenant": "ops",
        "scopes": list(scopes),
        "reach": "tenant",
        "created": world.now - 9e5,
        "expires": None,
        "last_used": world.now,
        "quota": {},
        "parent": None,
    }

    def answer(body: Any, status: int = 200, **headers: str) -> Response:
        return JSONResponse(body, status, headers)

    def listed(items: list[Any]) -> Response:
        return answer({"items": items, "next": None})

    @app.middleware("http")
    async def signed_in(request: Request, go_on: Any) -> Any:
        free = ("/v1/login", "/login", "/static", "/favicon")
        if (
            request.url.path.startswith("/v1")
            and not request.url.path.startswith(free)
            and "belljar" not in request.cookies
        ):
            return answer({"code": "unauthenticated"}, 401)
        return await go_on(request)

    @app.post("/v1/login")
    async def login(request: Request) -> Response:
        if (await request.json())["key"] != KEY:
            return answer({"code": "unauthenticated"}, 401)
        made = Response(status_code=204)
        made.set_cookie("belljar", "x", httponly=True, samesite="strict")
        return made

    @app.get("/v1/keys/self")
    async def own() -> Response:
        return answer(me)

    @app.get("/v1/keys")
    async def keys() -> Response:
        return listed(
            [
                me,
                {
                    **me,
                    "id": "k2",
                    "name": "ci-agents",
                    "scopes": ["run", "read"],
                    "last_used": None,
                    "expires": world.now + 9e5,
                },
            ]
        )

    @app.get("/v1/sessions")
    async def sessions() -> Response:
        return listed(list(world.sessions.values()))

    @app.get("/v1/sessions/{id}")
    async def session(id: str) -> Response:
        return (
            answer(world.sessions[id])
            if id in world.sessions
            else answer({"code": "session_not_found"}, 404)
        )

    @app.delete("/v1/sessions/{id}")
    async def stop(id: str) -> Response:
        world.sessions[id].update(
            state="ended", reason="deleted", ended=time.time(), current=None, waiting=0
        )
        world.put("sessions", world.sessions[id])
        return answer(world.sessions[id])

    @app.patch("/v1/sessions/{id}")
    async def change(id: str, request: Request) -> Response:
        world.sessions[id].update(await request.json())
        world.put("sessions", world.sessions[id])
        return answer(world.sessions[id])

    @app.get("/v1/sessions/{id}/commands")
    async def commands(id: str) -> Response:
        return listed(_commands(world, id))

    @app.get("/v1/sessions/{id}/commands/{command}")
    async def command(id: str, command: str) -> Response:
        return answer(
            next(each for each in _commands(world, id) if each["id"] == command)
        )

    @app.get("/v1/sessions/{id}/commands/{command}/output")
    async def output(id: str, command: str, offset: int = 0) -> Response:
        text = "".join(
            f"\x1b[32m{LINES[index % len(LINES)]}\x1b[0m\n" for index in range(120)
        ).encode()
        return Response(
            text[offset:],
            headers={"Belljar-Offset": str(offset), "Belljar-Next": str(len(text))},
        )

    @app.get("/v1/sessions/{id}/changes")
    async def changes(id: str) -> Response:
        facts = [
            ("modified", "src/shop/basket.py", {}),
            ("added", ".github/workflows/test.yml", {"runs_later": True}),
            ("added", "logo.png", {"binary": True}),
            ("deleted", "notes.txt", {}),
        ]
        return answer(
            {
                "items": [
                    {
                        "kind": kind,
                        "path": path,
                        "before": None,
                        "after": {"size": 3_355_443},
                        "binary": False,
                        "runs_later": False,
                        **more,
                    }
                    for kind, path, more in facts
                ],
                "next": None,
            },
            etag='"1"',
        )

    @app.get("/v1/sessions/{id}/diff")
    async def diff(id: str) -> Response:
        return Response(DIFF, media_type="text/x-diff")

    @app.get("/v1/sessions/{id}/entries")
    async def entries(id: str) -> Response:
        return listed(
            [
                {
                    "path": "src",
                    "kind": "directory",
                    "mode": 0o755,
                    "size": 0,
                    "mtime_ns": 1_700_000_000_000_000_000,
                    "target": None,
                },
                {
                    "path": "README.md",
                    "kind": "file",
                    "mode": 0o644,
                    "size": 8123,
                    "mtime_ns": 1_700_000_000_000_000_000,
                    "target": None,
                },
            ]
        )

    @app.get("/v1/approvals")
    async def approvals(state: str = "waiting") -> Response:
        return listed(
            [each for each in world.approvals.values() if each["state"] == state]
        )

    @app.get("/v1/approvals/{id}")
    async def approval(id: str) -> Response:
        return answer(world.approvals[id])

    @app.post("/v1/approvals/{id}")
    async def decide(id: str, request: Request) -> Response:
        said, found = await request.json(), world.approvals[id]
        found.update(
            state="allowed" if said["decision"] == "allow" else "denied",
            decided={
                "by": "k1",
                "name": "ana",
                "at": time.time(),
                **{key: said[key] for key in ("decision", "scope", "reason")},
            },
        )
        world.sessions[found["session"]]["waiting"] -= 1
        world.put("approvals", found)
        world.put("sessions", world.sessions[found["session"]])
        return answer(found)

    @app.get("/v1/audit")
    async def audit() -> Response:
        return listed(world.records[::-1][:200])

    @app.get("/v1/usage")
    async def usage() -> Response:
        return answer(
            {
                "tenant": "ops",
                "sessions": len(world.sessions),
                "memory": 12 << 30,
                "cpus": 50.0,
                "disk": 0,
                "creates_last_minute": 3,
                "commands": 1234,
                "cpu_time": 5230.0,
                "quota": {"sessions": 60},
            }
        )

    @app.get("/v1/policies")
    async def policies() -> Response:
        return listed(["ci", "default", "strict"])

    @app.post("/v1/check")
    async def check(request: Request) -> Response:
        kind = ASKED[0]
        said = await request.json()
        return answer(
            {
                "decision": "ask",
                "risk": "critical",
                "reason": kind[5],
                "canonical": said["command"],
                "rules": [
                    {
                        "id": kind[4],
                        "decision": "ask",
                        "risk": "critical",
                        "reason": kind[5],
                    }
                ],
                "effects": ["privilege make install [system]  via sudo"],
                "words": [
                    "sudo make install  ←  privilege.sudo in policies/knowledge/privilege.toml"
                ],
            }
        )

    @app.get("/v1/events")
    async def events(request: Request, topics: str) -> Response:
        return StreamingResponse(
            _events(world, request, topics.split(",")), media_type="text/event-stream"
        )

    routes.mount(app)
    return app


async def _events(
    world: World, request: Request, topics: list[str]
) -> AsyncIterator[str]:
    queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
    world.followers.append(queue)
    world.streams += 1
    world.most_streams = max(world.most_streams, world.streams)
    try:
        for topic in topics:
            if not topic.startswith("output"):
                yield _event(
                    topic, {"kind": "snapshot", "items": world.snapshot(topic)}
                )
        while True:
            yield "event: ping\ndata: {}\n\n"
            end = time.monotonic() + 1
            while (left := end - time.monotonic()) > 0:
                try:
                    topic, data = await asyncio.wait_for(queue.get(), left)
                except TimeoutError:
                    break
                if topic in topics:
                    yield _event(
                        "output" if topic.startswith("output") else topic, data
                    )
    finally:
        world.streams -= 1
        world.followers.remove(queue)


def _event(topic: str, data: dict[str, Any]) -> str:
    return f"event: {topic}\nid: 1\ndata: {json.dumps(data)}\n\n"


def _commands(world: World, id: str) -> list[dict[str, Any]]:
    session = world.sessions[id]
    ends = [
        ("exited", 0),
        ("timeout", 124),
        ("out_of_memory", 137),
        ("exited", 1),
        ("killed", 137),
    ]
    verdict = {"decision": "allow", "risk": "low"}
    found = []
    if session["current"]:
        found.append(
            {
                **session["current"],
                "session": id,
                "state": "running",
                "created": session["current"]["started"],
                "ended": None,
                "result": None,
                "error": None,
                "exit_code": None,
                "verdict": verdict,
                "bytes_dropped": 0,
            }
        )
    for index in range(8):
        cause, code = ends[index % len(ends)]
        started = world.now - 400 - index * 60
        found.append(
            {
                "id": f"{id}c{index}",
                "session": id,
                "command": COMMANDS[index],
                "state": "ended",
                "created": started,
                "started": started,
                "ended": started + 3 * index + 0.4,
                "result": {"cause": cause, "exit_code": code, "network": []},
                "exit_code": code,
                "error": None,
                "verdict": verdict,
                "bytes_dropped": 0,
            }
        )
    return found


DIFF = '''diff --git a/src/shop/basket.py b/src/shop/basket.py
--- a/src/shop/basket.py
+++ b/src/shop/basket.py
@@ -1,7 +1,8 @@
 """A basket of goods."""

 class Basket:
-    def total(self):
-        return sum(self.prices)
+    def total(self, tax: float = 0.0) -> float:
+        # prices are in cents
+        return sum(self.prices) * (1 + tax)

     def add(self, price):
@@ -40,4 +41,5 @@
     def clear(self):
         self.prices = []
+        self.changed = True

     def __len__(self):
diff --git a/.github/workflows/test.yml b/.github/workflows/test.yml
new file mode 100644
--- /dev/null
+++ b/.github/workflows/test.yml
@@ -0,0 +1,2 @@
+on: push
+jobs: {}
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files a/logo.png and b/logo.png differ
diff --git a/notes.txt b/notes.txt
deleted file mode 100644
--- a/notes.txt
+++ /dev/null
@@ -1 +0,0 @@
-old notes
'''
