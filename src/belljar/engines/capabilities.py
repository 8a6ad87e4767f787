"""What an engine can give its sandboxes, and what of them this machine sees.

Launch, verification, workspace and surfaces ask this record, never an engine's name. The defaults are those of an
engine on this machine.
"""

from __future__ import annotations

from belljar.engines.spec import OWN_NAMESPACES, LinkKind, Network
from belljar.records import record


@record
class Capabilities:
    link: LinkKind = "socket"
    """socket: a sandbox can dial a socket in a directory that we mount; exec: the engine runs a bridge to the init."""
    workspace: bool = True
    """The workspace itself can be mounted (`direct`); else it is copied in and out (`staged`)."""
    binds: bool = True
    """Our own mounts work inside: extra directories, caches, scratch volumes, account files, mapped owners."""
    overlays: bool = True
    """Staged changes and checkpoints are layers on this machine; else they are copies."""
    sees_processes: bool = True
    """`Launched.pid` is a process of this machine: its kernel shows what is in force, ports and out-of-memory kills."""
    sees_groups: bool = True
    """The control groups are this machine's: what a sandbox uses can be counted."""
    removes_itself: bool = True
    """Nothing is left of a sandbox that ended by itself; else `destroy` must remove the rest."""
    own_kernel: bool = False
    """Sandboxes run on a kernel of their runtime's, not on this machine's."""
    user_namespaces: bool = False
    """Each sandbox has its own, so commands may be root inside (`--root`)."""
    networks: frozenset[Network] = frozenset({"none", "full"})
    """What it can give; the door needs none."""
    own_namespaces: frozenset[str] = OWN_NAMESPACES
    """Which of `spec.OWN_NAMESPACES` each sandbox gets."""
    masks: frozenset[str] | None = None
    """The only paths that it can hide in a sandbox; None: any."""
    limits_processes: bool = True
    """It sets ulimits and the number of processes; else the init sets them on itself, and all commands inherit them."""
    pauses: bool = True
    """All processes of a sandbox can be frozen and go on later."""
    gives_user: bool = True
    """A bridge runs as another user than commands do, so the init can tell them apart by that."""
