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

    @property
    def extra(self) -> str:
        return self.name.replace("_", "-")


FRAMEWORKS = {
    one.name: one
    for one in (
        Framework("inspect", ("inspect-ai==0.3.285",), "inspect_ai"),
        Framework("deepagents", ("deepagents==0.7.32", "langchain-tests==1.1.9"), "deepagents"),
        Framework("pydantic_ai", ("pydantic-ai-slim==2.66.0",), "pydantic_ai"),
        Framework("openai_agents", ("openai-agents==0.24.0",), "agents"),
        Framework("swerex", ("swe-rex==1.4.0",), "swerex"),
        Framework("harbor", ("harbor==0.25.0",), "harbor", python=(3, 12)),
        Framework("mini", ("mini-swe-agent==2.4.6",), "minisweagent"),
        Framework("openhands", ("openhands-sdk==1.58.2",), "openhands", python=(3, 12)),
        Framework("acp", ("agent-client-protocol==0.12.1",), "acp"),
    )
}
