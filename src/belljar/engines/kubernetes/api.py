"""The cluster's API: lightkube, with bounded retries, plain dictionaries, and our own errors. Blocking.

Every request may be repeated: names are ours, so a create whose answer was lost is found again, and the other verbs
change nothing the second time. What a broken connection or a busy server (429, 5xx) says is tried again for a while.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx2
import lightkube
from lightkube.config import client_adapter
from lightkube.config.models import User
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from belljar.engines.kubernetes.settings import Settings
from belljar.errors import (
    EngineError,
    EngineRefused,
    EngineUnavailable,
    QuotaExceeded,
)
from belljar.patience import about_to_wait, stretched

ANSWER_SECONDS = 10.0
RETRY_SECONDS = 15.0  # an API server restarts in less
WATCH_SECONDS = 240
CONNECTIONS = 32
BUSY = (429, 500, 502, 503, 504)
T = TypeVar("T")


class Answered(EngineError):
    """The API server refused."""

    def __init__(self, doing: str, status: int, message: str) -> None:
        super().__init__(f"{doing}: {message}")
        self.status = status


class Api:
    def __init__(self, settings: Settings) -> None:
        try:
            config = lightkube.KubeConfig.from_env().get(settings.context or None)
        except (ConfigError, OSError, ValueError) as error:
            raise EngineUnavailable(
                f"No Kubernetes cluster is configured: {error}. Set KUBECONFIG, or BELLJAR_KUBERNETES_CONTEXT"
            ) from error
        if config is None:
            raise EngineUnavailable(
                f"The kubeconfig has no context {settings.context!r}"
            )
        self.config = config
        self.namespace = settings.namespace or config.namespace or "default"
        self.server = str(config.cluster.server)
        timeout = httpx2.Timeout(stretched(ANSWER_SECONDS))
        self._transport = httpx2.HTTPTransport(
            verify=self.tls, limits=httpx2.Limits(max_connections=CONNECTIONS)
        )
        self._client = lightkube.Client(
            config,
            namespace=self.namespace,
            timeout=timeout,
            field_manager="belljar",
            transport=self._transport,
        )

    def get(self, name: str) -> dict[str, Any] | None:
        try:
            return self._asked(
                "looking at the Pod", lambda: self._client.get(Pod, name).to_dict()
            )
        except Answered as error:
            if error.status == 404:
                return None
            raise

    def create(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        try:
            made = cast("Pod", Pod.from_dict(dict(pod)))
            return self._asked(
                "creating the Pod", lambda: self._client.create(made).to_dict()
            )
        except Answered as error:
            if error.status == 409 and (there := self.get(name)) is not None:
                return there  # of our own earlier request, whose answer was lost
            if error.status == 403 and "exceeded quota" in str(error):
                raise QuotaExceeded(
                    f"{error}; end other sandboxes, or ask for a larger quota"
                ) from error
            raise

    def delete(self, name: str, uid: str | None = None) -> bool:
        """False: it did not exist."""
        try:
            self._asked(
                "removing the Pod",
                lambda: self._client.delete(Pod, name, grace_period=0),
            )
        except Answered as error:
            if error.status != 404:
                raise
            return False
        return True

    def patch(self, name: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """A JSON patch, all of it or nothing. Not repeated: a test in it would fail the second time."""
        doing = "claiming the Pod"
        with _translated(doing, self.server):
            return self._client.patch(
                Pod, name, operations, patch_type=PatchType.JSON
            ).to_dict()
        raise AssertionError

    def list(self, labels: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """The Pods with these labels, and the version of this list, from which it can be watched."""

        def ask() -> tuple[list[dict[str, Any]], str]:
            found = self._client.list(Pod, labels=dict(labels), chunk_size=500)
            pods = [each.to_dict() for each in found]
            return pods, found.resourceVersion

        return self._asked("listing the Pods", ask)

    def watch(
        self, labels: Mapping[str, str], version: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes since that version, until the server ends it; errors are the caller's."""
        with _translated("watching the Pods", self.server):
            for kind, pod in self._client.watch(
                Pod,
                labels=dict(labels),
                server_timeout=WATCH_SECONDS,
                resource_version=version,
            ):
                yield kind, pod.to_dict()

    def version(self) -> dict[str, str]:
        answer = self.request("asking for its version", "GET", "/version")
        return {str(key): str(value) for key, value in answer.items()}

    def request(
        self, doing: str, method: str, path: str, body: Any = None
    ) -> dict[str, Any]:
        """What lightkube has no typed resource for."""

        def ask() -> dict[str, Any]:
            answer = self._http.request(method, path, json=body)
            if answer.status_code >= 400:
                raise Answered(doing, answer.status_code, _reason(answer))
            return cast("dict[str, Any]", answer.json())

        return self._asked(doing, ask)

    def changes(
        self, doing: str, path: str, labels: Mapping[str, str], version: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """As `watch`, of what lightkube has no typed resource for."""
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        asked = f"{path}?{query}&labelSelector={selector(labels)}"
        patience = stretched(ANSWER_SECONDS)
        timeout = httpx2.Timeout(patience, read=WATCH_SECONDS + patience)
        with (
            _translated(doing, self.server),
            self._http.stream("GET", asked, timeout=timeout) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                raise Answered(doing, answer.status_code, _reason(answer))
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":  # its version is too old
                    return
                yield str(event["type"]), event["object"]

    @cached_property
    def _http(self) -> httpx2.Client:
        auth = client_adapter.user_auth(self.config.user)
        timeout = stretched(ANSWER_SECONDS)
        return httpx2.Client(
            base_url=self.server, transport=self._transport, auth=auth, timeout=timeout
        )

    @cached_property
    def tls(self) -> ssl.SSLContext:
        return client_adapter.verify_cluster(
            self.config.cluster, self.config.user or User(), self.config.abs_file
        )

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.server)
        return str(parts.hostname), parts.port or 443

    def headers(self) -> dict[str, str]:
        """What proves who we are; a fresh token where one expires."""
        auth = client_adapter.user_auth(self.config.user)
        request = httpx2.Request("GET", self.server)
        if auth is not None:
            request = next(auth.sync_auth_flow(request))
        return {
            name: value
            for name, value in request.headers.items()
            if name.lower() == "authorization"
        }

    def close(self) -> None:
        self._transport.close()

    def _asked(self, doing: str, ask: Callable[[], T]) -> T:
        for attempt in Retrying(
            stop=stop_after_delay(stretched(RETRY_SECONDS)),
            wait=wait_random_exponential(0.05, 2.0),
            retry=retry_if_exception(_passes),
            reraise=True,
        ):
            with attempt, _translated(doing, self.server):
                about_to_wait()
                return ask()
        raise AssertionError


class _translated:
    """Turns the errors of lightkube and of the connection into ours, once."""

    def __init__(self, doing: str, server: str) -> None:
        self._doing, self._server = doing, server

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, ApiError):
            status = int(error.status.code or 0)
            message = str(error.status.message or error)[:400]
            if status in (401, 403) and "quota" not in message:
                raise EngineRefused(
                    f"{self._doing}: {message}; `belljar doctor` says what is missing"
                ) from error
            raise Answered(self._doing, status, message) from error
        if isinstance(error, httpx2.HTTPError | httpx2.StreamError | OSError):
            text = f"{self._doing}: the API server at {self._server} did not answer ({_brief(error)})"
            raise EngineUnavailable(text) from error


def selector(labels: Mapping[str, str]) -> str:
    """In a query."""
    return quote(",".join(f"{key}={value}" for key, value in labels.items()), safe="")


def _passes(error: BaseException) -> bool:
    """Whether it may be different in a moment."""
    if isinstance(error, EngineRefused):
        return False
    return isinstance(error, EngineUnavailable) or (
        isinstance(error, Answered) and error.status in BUSY
    )


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _reason(answer: httpx2.Response) -> str:
    try:
        return str(answer.json().get("message"))[:400]
    except ValueError:
        return f"status {answer.status_code}"
