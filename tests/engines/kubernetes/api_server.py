"""A fake API server on the loopback: Pods in memory, watches, JSON patches, leases, and exec over a real WebSocket.

It answers like a real one where the engine looks, and fails where a test asks it to. The real one is used by
`make kubernetes-test`.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import queue
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
Exec = Callable[["Peer"], None]


class Peer:
    """The server's end of an exec stream."""

    def __init__(self, connection: socket.socket, protocol: str) -> None:
        self.connection, self.protocol = connection, protocol

    def say(
        self, channel: int, data: bytes, *, opcode: int = 2, final: bool = True
    ) -> None:
        self.raw(bytes([channel]) + data, opcode=opcode, final=final)

    def raw(self, payload: bytes, *, opcode: int = 2, final: bool = True) -> None:
        first = opcode | (0x80 if final else 0)
        size = len(payload)
        if size < 126:
            head = bytes([first, size])
        elif size < 1 << 16:
            head = bytes([first, 126]) + struct.pack(">H", size)
        else:
            head = bytes([first, 127]) + struct.pack(">Q", size)
        self.connection.sendall(head + payload)

    def hear(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame, unmasked."""
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            size = struct.unpack(">H", self._exactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self._exactly(8))[0]
        assert second & 0x80, "a client masks what it sends"
        mask = self._exactly(4)
        body = self._exactly(size)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        return first & 0x0F, (int.from_bytes(body, "big") ^ key).to_bytes(size, "big")

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class FakeServer:
    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.failures: list[tuple[str, str, int, str]] = []
        """The next request with this method and text in its path fails with this status and message, once each."""
        self.when_created: Callable[[dict[str, Any]], None] = lambda pod: None
        self.exec: Exec = lambda peer: None
        self.protocol: str | None = "v5.channel.k8s.io"
        self.version = 0
        self.leases: dict[str, Any] = {}
        self.custom: dict[tuple[str, str], dict[str, Any]] = {}
        """Objects of agent-sandbox, by plural and name."""
        self.allowed: dict[str, set[str]] | None = None
        """Resource → verbs; None: everything."""
        self._watchers: list[tuple[str, queue.Queue[Any]]] = []
        self._log: list[tuple[int, str, dict[str, Any]]] = []
        self._lock = threading.RLock()
        self._http = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop_watches()
        self._http.shutdown()
        self._http.server_close()

    def kubeconfig(self) -> str:
        server = f"http://127.0.0.1:{self._http.server_port}"
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t0k"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}],
        })  # fmt: skip

    def change(self, name: str, **status: Any) -> None:
        with self._lock:
            self.pods[name]["status"].update(status)
            self._note("MODIFIED", self.pods[name])

    def run(self, pod: dict[str, Any]) -> None:
        """As if a node had started it."""
        running = [{"name": "sandbox", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "image": "i",
                    "imageID": "", "ready": True, "restartCount": 0}]  # fmt: skip
        self.change(pod["metadata"]["name"], phase="Running", containerStatuses=running)

    def drop_watches(self) -> None:
        with self._lock:
            for _, each in self._watchers:
                each.put(None)

    def count(self, method: str, text: str = "") -> int:
        return sum(how == method and text in path for how, path in self.requests)

    # What the handler does.

    def create(self, pod: dict[str, Any]) -> tuple[int, Any]:
        name = pod["metadata"]["name"]
        with self._lock:
            if name in self.pods:
                return 409, status(
                    409, f'pods "{name}" already exists', "AlreadyExists"
                )
            pod["metadata"].update(uid=f"u-{name}", namespace="team")
            pod["status"] = {"phase": "Pending"}
            self.pods[name] = pod
            self._note("ADDED", pod)
        threading.Thread(target=self.when_created, args=[pod], daemon=True).start()
        return 201, pod

    def delete(self, name: str) -> tuple[int, Any]:
        with self._lock:
            pod = self.pods.pop(name, None)
            if pod is None:
                return 404, status(404, f'pods "{name}" not found', "NotFound")
            self._note("DELETED", pod)
            return 200, pod

    def patch(self, name: str, operations: list[dict[str, Any]]) -> tuple[int, Any]:
        with self._lock:
            pod = copy.deepcopy(self.pods.get(name))
            if pod is None:
                return 404, status(404, "not found", "NotFound")
            for each in operations:
                *way, last = [
                    part.replace("~1", "/").replace("~0", "~")
                    for part in each["path"].split("/")[1:]
                ]
                at = pod
                for part in way:
                    at = at[part]
                if each["op"] == "test" and at.get(last) != each["value"]:
                    return 422, status(
                        422,
                        "the server rejected our request due to an error in our request",
                        "Invalid",
                    )
                if each["op"] != "test":
                    at[last] = each["value"]
            self.pods[name] = pod
            self._note("MODIFIED", pod)
            return 200, pod

    def listed(self, selector: str) -> dict[str, Any]:
        wanted = dict(each.split("=", 1) for each in selector.split(",") if each)
        with self._lock:
            items = [
                pod
                for pod in self.pods.values()
                if wanted.items() <= pod["metadata"].get("labels", {}).items()
            ]
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(self.version)},
                    "items": copy.deepcopy(items)}  # fmt: skip

    def watch(self, since: int, plural: str = "pods") -> queue.Queue[Any]:
        """Begins with what happened since that version."""
        with self._lock:
            events: queue.Queue[Any] = queue.Queue()
            for version, kind, event in self._log:
                if version > since and kind == plural:
                    events.put(event)
            self._watchers.append((plural, events))
            return events

    def change_custom(
        self, method: str, plural: str, name: str, body: Any, part: str
    ) -> tuple[int, Any]:
        """Whole objects, and their status apart from the rest, as with a status subresource."""
        with self._lock:
            if method == "GET" and not name:
                items = [
                    one for (kind, _), one in self.custom.items() if kind == plural
                ]
                return 200, {
                    "items": copy.deepcopy(items),
                    "metadata": {"resourceVersion": str(self.version)},
                }
            if method == "POST":
                name = body["metadata"]["name"]
                body["metadata"]["uid"] = f"u-{name}"
                body.pop("status", None)
                if (plural, name) in self.custom:
                    return 409, status(409, "already exists", "AlreadyExists")
                return 201, self._keep("ADDED", plural, body)
            found = self.custom.get((plural, name))
            if found is None:
                return 404, status(404, f'{plural} "{name}" not found', "NotFound")
            if method == "DELETE":
                del self.custom[plural, name]
                self._note("DELETED", found, plural)
            if method == "PUT":
                mine = {"status": body.get("status")} if part else body
                return 200, self._keep("MODIFIED", plural, {**found, **mine})
            return 200, found

    def _keep(self, kind: str, plural: str, made: dict[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(made)
        self.custom[plural, made["metadata"]["name"]] = made
        self._note(kind, made, plural)
        return made

    def _note(self, kind: str, changed: dict[str, Any], plural: str = "pods") -> None:
        self.version += 1
        changed["metadata"]["resourceVersion"] = str(self.version)
        event = {"type": kind, "object": copy.deepcopy(changed)}
        self._log.append((self.version, plural, event))
        for wanted, each in self._watchers:
            if wanted == plural:
                each.put(event)


def status(code: int, message: str, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "reason": reason}  # fmt: skip


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            server.requests.append((self.command, self.path))
            for each in list(server.failures):
                if each[0] == self.command and each[1] in self.path:
                    server.failures.remove(each)
                    self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    self._answer(each[2], status(each[2], each[3], "Failed"))
                    return
            if self.headers.get("Authorization") != "Bearer t0k":
                self._answer(401, status(401, "Unauthorized", "Unauthorized"))
            elif parts.path.endswith("/exec"):
                self._exec()
            elif "watch" in query:
                plural = parts.path.rpartition("/")[2]
                self._watch(int(query["resourceVersion"][0]), plural)
            else:
                self._answer(*self._result(parts.path, query))

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _serve

        def _result(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
            body = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null"
            )
            name = path.rpartition("/")[2]
            if path.endswith("/selfsubjectaccessreviews"):
                asked = body["spec"]["resourceAttributes"]
                name = "/".join(filter(None, (asked["resource"], asked["subresource"])))
                return 201, {
                    "status": {
                        "allowed": server.allowed is None
                        or asked["verb"] in server.allowed[name]
                    }
                }
            if "agents.x-k8s.io/" in path:
                plural, name, part = (*path.split("/")[6:], "", "")[:3]
                return server.change_custom(self.command, plural, name, body, part)
            if path == "/version":
                return 200, {"gitVersion": "v1.30.0"}
            if "/leases" in path:
                if self.command == "GET":
                    found = server.leases.get(name)
                    return (
                        (200, found)
                        if found
                        else (404, status(404, "no lease", "NotFound"))
                    )
                body["metadata"]["resourceVersion"] = str(server.version)
                server.leases[body["metadata"]["name"]] = body
                return 200, body
            if self.command == "POST":
                return server.create(body)
            if self.command == "DELETE":
                return server.delete(name)
            if self.command == "PATCH":
                return server.patch(name, body)
            if name == "pods":
                return 200, server.listed(query.get("labelSelector", [""])[0])
            pod = server.pods.get(name)
            return (
                (200, pod)
                if pod
                else (404, status(404, f'pods "{name}" not found', "NotFound"))
            )

        def _answer(self, code: int, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _watch(self, since: int, plural: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            events = server.watch(since, plural)
            while (event := events.get()) is not None:
                try:
                    self.wfile.write(json.dumps(event).encode() + b"\n")
                    self.wfile.flush()
                except OSError:
                    return

        def _exec(self) -> None:
            self.close_connection = True
            accept = base64.b64encode(
                hashlib.sha1(
                    self.headers["Sec-WebSocket-Key"].encode() + MAGIC
                ).digest()
            )
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept.decode())
            if server.protocol:
                self.send_header("Sec-WebSocket-Protocol", server.protocol)
            self.end_headers()
            self.wfile.flush()
            with contextlib.suppress(EOFError, OSError):
                server.exec(Peer(self.connection, server.protocol or ""))

    return Handler
