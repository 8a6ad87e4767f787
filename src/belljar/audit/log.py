"""Structured logging, switched on with BELLJAR_LOG=info|debug (`info,json`: JSON lines) or `--verbose`.

Records of the logger `belljar` go to stderr, with their `extra` as key=value after the message, and secrets masked.
Levels: start and end at info, a timeout at error, everything else at debug.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from belljar import environment
from belljar.audit import masking
from belljar.errors import UsageError

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    from datetime import UTC, datetime  # most commands log nothing

    extra = {
        name: value for name, value in vars(record).items() if name not in _STANDARD
    }
    head = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        ),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    if record.exc_info and record.exc_info[1] is not None:
        head["error"] = repr(record.exc_info[1])
    masked: dict[str, Any] = masking.value(masking.bounded(head | extra))
    return masked


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        head = " ".join(str(fields.pop(name)) for name in ("time", "level", "logger"))
        message = json.dumps(fields.pop("message"), ensure_ascii=False)[1:-1]
        return f"{head}: {message}" + "".join(
            f" {k}={json.dumps(v, default=str)}" for k, v in fields.items()
        )


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), default=str)


class _WarningFormatter(logging.Formatter):
    """Without a log, a warning is one line that looks like an error message."""

    def format(self, record: logging.LogRecord) -> str:
        return f"belljar: {masking.text(masking.bounded(record.getMessage()))}"


_commands = logging.getLogger("belljar.commands")
_LOGGED = ("session", "digest", "cause", "exit_code", "duration")


def log_record(kind: str, fields: Mapping[str, Any]) -> None:
    if not _commands.isEnabledFor(logging.INFO):
        return
    extra = {name: fields[name] for name in _LOGGED if fields.get(name) is not None}
    if kind == "start":
        _commands.info("Executing command: %s", fields.get("command"), extra=extra)
    elif kind == "end" and fields.get("cause") == "timeout":
        _commands.error("Command timeout exceeded", extra=extra)
    elif kind == "end":
        word = "executed" if fields.get("exit_code") == 0 else "failed"
        _commands.info(
            "Command %s (exit: %s)", word, fields.get("exit_code"), extra=extra
        )
    else:
        _commands.debug("%s", kind, extra=extra)


def configure(wish: str | None = None, *, verbose: bool = False) -> None:
    """Set up the `belljar` logger for our own programs; users of the library configure logging themselves."""
    words = (
        (wish or environment.value("BELLJAR_LOG") or ("info" if verbose else ""))
        .lower()
        .split(",")
    )
    if words[0] and (words[0] not in _LEVELS or words[1:] not in ([], ["json"])):
        raise UsageError(
            f"BELLJAR_LOG={','.join(words)}: write {' or '.join(_LEVELS)}, and `,json` for JSON lines"
        )
    handler = logging.StreamHandler(sys.stderr)
    formatter = JsonFormatter() if "json" in words else TextFormatter()
    handler.setFormatter(formatter if words[0] else _WarningFormatter())
    logger = logging.getLogger("belljar")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(_LEVELS.get(words[0], logging.WARNING))
    # What a tool logs is in its result, too, so it is logged only if a log was switched on.
    logging.getLogger("belljar.tools").setLevel(
        logging.NOTSET if words[0] else logging.CRITICAL
    )
