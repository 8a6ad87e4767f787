"""The frameworks that Belljar has adapters for, at the versions that they are tested with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    name: str
    """Of the adapter, of its extra (with dashes) and of its tests: test_NAME.py and, of others, suite_NAME.py."""
    pins: tuple[str, ...]
    """The framework, and what its own suite needs."""
    module: str
    """What is there to import where it is installed."""
    python: tuple[int, int] = (3, 11)
    sdist: str = ""
    """The SHA-256 of its source distribution, if only that has its own suite."""
    without: tuple[str, ...] = ()
    """Packages that it names and the index cannot give (no wheel, or not yet in that version), and what only they need.
    If another package brings one, in whatever version, it is there all the same."""

    @property
    def extra(self) -> str:
        return self.name.replace("_", "-")


FRAMEWORKS = {
    one.name: one
    for one in (
        Framework("inspect", ("inspect-ai==0.3.285",), "inspect_ai"),
        Framework(
            "deepagents", ("deepagents==0.7.32", "langchain-tests==1.1.9"), "deepagents"
        ),
        Framework("pydantic_ai", ("pydantic-ai-slim==2.66.0",), "pydantic_ai"),
        Framework("openai_agents", ("openai-agents==0.24.0",), "agents"),
        Framework(
            "swerex",
            ("swe-rex==1.4.0", "aiohttp==3.14.5"),
            "swerex",
            sdist="14f8a24c49a63f9e251340b1109ac75a4aacbaece410f8599209de9bfca843c0",
        ),
        Framework(
            "harbor",
            ("harbor==0.25.0",),
            "harbor",
            python=(3, 12),
            without=("certifi",),
        ),
        Framework("mini", ("mini-swe-agent==2.4.6",), "minisweagent"),
        Framework(
            "openhands",
            ("openhands-sdk==1.58.2", "openhands-tools==1.58.2"),
            "openhands",
            python=(3, 12),
            without=("certifi", "func-timeout", "browser-use", "tom-swe"),
        ),
        Framework("acp", ("agent-client-protocol==0.12.1",), "acp"),
    )
}
