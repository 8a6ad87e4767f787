"""The program `belljar`. If the user's local server runs, it carries the command line out in a process that is ready;
else, and whenever anything is in the way, this process does, as if there were no server.

The server's worker uses our own stdin, stdout and stderr. We pass signals on and exit with its status. It begins only
when we say so: until then we may still run the command line ourselves, and it is never run twice.
"""

from __future__ import annotations

import os
import sys

STREAMS = (0, 1, 2)
TAKEN_SECONDS = 2.0  # a server that is slower than that is of no use


def main() -> int:
    argv = sys.argv[1:]
    status = _relayed(argv)
    if status is not None:
        os._exit(
            status
        )  # nothing is buffered here, and Python's end takes milliseconds
    from belljar.surfaces.cli.main import main as run_here

    return run_here()


def _relayed(argv: list[str]) -> int | None:
    """The status of a command line that the server has carried out; None: nothing has run."""
    from belljar.surfaces.local.meeting import RELAYED, Unmet

    if not argv or argv[0] not in RELAYED:
        return None
    try:
        call = Call(argv)
    except FileNotFoundError:
        return None  # no server
    except (Unmet, OSError, ValueError, AttributeError) as reason:
        if "-v" in argv or "--verbose" in argv:
            sys.stderr.write(f"belljar: not by the local server: {reason}\n")
        return None
    return call.status()


class Call:
    """A command line in a worker's hands."""

    def __init__(self, argv: list[str]) -> None:
        import _socket

        from belljar.surfaces.local import meeting

        _check_streams()
        place = meeting.enter(meeting.directory())
        self._connection = _socket.socket(
            _socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC
        )
        self._connection.settimeout(TAKEN_SECONDS)
        self._connection.connect(f"/proc/self/fd/{place}/socket")
        meeting.peer(self._connection)
        terminals = b"".join(b"1" if os.isatty(number) else b"0" for number in STREAMS)
        variables = [name + b"=" + value for name, value in os.environb.items()]
        words = [os.fsencode(word) for word in argv]
        self._connection.sendall(
            meeting.packed([meeting.code(), terminals], words, variables)
        )
        word, _, rest = self._line().partition(" ")
        if word != "taken":
            raise meeting.Unmet(rest or "it has hung up")
        self._worker = os.pidfd_open(int(rest))
        self._pass_signals_on()
        rights = b"".join(number.to_bytes(4, sys.byteorder) for number in STREAMS)
        self._connection.sendmsg(
            [b"go\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        )
        self._connection.settimeout(None)
        os.close(place)

    def _line(self) -> str:
        data = b""
        while not data.endswith(b"\n") and (more := self._connection.recv(4096)):
            data += more
        return data.decode("utf-8", "replace").rstrip("\n")

    def _pass_signals_on(self) -> None:
        import _signal as signal  # type: ignore[import-not-found]  # without its enums, which take milliseconds

        def pass_on(number: int, _: object) -> None:
            try:
                signal.pidfd_send_signal(
                    self._worker, signal.SIGSTOP if number == signal.SIGTSTP else number
                )
            except ProcessLookupError:
                return
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)

        passed = [
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGWINCH,
            signal.SIGCONT,
        ]
        if os.isatty(0):
            for key in (signal.SIGTSTP, signal.SIGQUIT):  # as terminal/host.py
                signal.signal(key, signal.SIG_IGN)
        else:
            passed.append(signal.SIGTSTP)
        for number in passed:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, pass_on)

    def status(self) -> int:
        try:
            word, _, rest = self._line().partition(" ")
        except OSError:
            word = ""
        if word == "status":
            return int(rest)
        sys.stderr.write(
            "belljar: the local server's worker was lost while the command ran\n"
        )
        return 125


def _check_streams() -> None:
    from belljar.surfaces.local.meeting import Unmet

    for number in STREAMS:
        os.fstat(number)  # OSError if it is closed
    if os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp():
        raise Unmet("we are in the background of the terminal")


if __name__ == "__main__":
    sys.exit(main())
