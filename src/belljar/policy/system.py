"""Programs known by their purpose: disks, power, accounts, services, modules, firewall, processes."""

import re

from .call import Call, program
from .marks import ATOM, FILE, UNKNOWN, has_glob, known, solid, unglob
from .quoting import listed

# program: (effect kind, arguments that make it harmless). Without such an argument the effect is emitted.
_PURPOSE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        listed("mkfs mke2fs mkswap mkdosfs mkntfs mkreiserfs newfs"), ("device.format", r"--help|--version|-V\b")
    ),
    **dict.fromkeys(
        listed(
            "wipefs blkdiscard sgdisk gdisk cfdisk sfdisk fdisk parted partprobe hdparm nvme badblocks "
            "cryptsetup pvcreate pvremove vgremove vgcreate lvremove lvcreate zpool zfs mdadm dmsetup "
            "losetup e2label tune2fs resize2fs debugfs flashrom fatlabel dc3dd nwipe partx sg_format "
            "efibootmgr grub-install bmaptool extlinux syslinux lilo dmraid bcache-super-show sg_dd secure-delete "
            "mkfatimage mkisofs-burn"
        ),
        (
            "device.format",
            r"(^|\s)(-l|--list|-L|print|list|status|-h|--help|--version|-V|-I|-i|show|id-ctrl|get)(\s|"
            r"$)|^$|^-a$",
        ),
    ),
    **dict.fromkeys(
        listed("shutdown reboot halt poweroff telinit kexec openrc-shutdown pm-suspend pm-hibernate rtcwake"),
        ("process.power", r"--help|--version"),
    ),
    **dict.fromkeys(
        listed(
            "iptables ip6tables nft ufw firewall-cmd ebtables arptables iptables-restore nft-restore "
            "pfctl ipset conntrack"
        ),
        (
            "net.firewall",
            r"(^|\s)(-L|-S|--list\S*|list|status|--state|--get-\S+|--help|--version|-V|-nvL|-nL|-vnL|show)(\s|"
            r"$)",
        ),
    ),
    **dict.fromkeys(
        listed(
            "resolvectl systemd-resolve networkctl netplan ifup ifdown dhclient resolvconf hostnamectl localectl iwctl "
            "wpa_cli"
        ),
        (
            "net.firewall",
            r"^(-\S+ )*(status|query|statistics|show\S*|list\S*|get|monitor|hostname|lldp|cat|--\S+|-l)?(\s|$)",
        ),
    ),
    **dict.fromkeys(
        listed(
            "useradd adduser userdel deluser usermod groupadd groupdel groupmod gpasswd chpasswd passwd "
            "chage visudo vipw vigr chsh chfn newusers pwconv grpck addgroup delgroup"
        ),
        ("privilege.account", r"(^|\s)(-S|--status|-l|--list|--help|--version|-c)(\s|$)"),
    ),
    **dict.fromkeys(listed("setcap setpcap filecap pscap"), ("privilege.setuid", r"--help|(^|\s)-v\s")),
    **dict.fromkeys(
        listed("umount fusermount fusermount3 mount.cifs mount.nfs swapon swapoff sshfs mergerfs losetup"),
        ("kernel.mount", r"--help|--version|--show|-s(\s|$)"),
    ),
    **dict.fromkeys(
        listed("insmod modprobe rmmod depmod kmod dkms"),
        ("kernel.module", r"--help|--version|-V|status|list|-n\b|--show-depends|--dry-run"),
    ),
    **dict.fromkeys(listed("crontab at batch anacron incrontab"), ("persist.cron", r"(^|\s)-l(\s|$)|--help|-V")),
    **dict.fromkeys(
        listed("update-rc.d chkconfig rc-update initctl launchctl loginctl update-alternatives"),
        (
            "persist.service",
            r"(^|\s)((--?)?list\S*|status|show\S*|--display|--query|print|--get-selections|session-status|"
            r"user-status)(\s|$)",
        ),
    ),
    **dict.fromkeys(
        listed(
            "bpftool bpftrace keyctl setenforce aa-disable apparmor_parser auditctl semanage tc ethtool "
            "kubeadm dmidecode"
        ),
        ("kernel.sysctl", r"(^|\s)(list|show|status|-l|--list|-s)(\s|$)|^$"),
    ),
    **dict.fromkeys(
        listed("telnetd ttyd gotty shellinaboxd shellinabox sshd in.telnetd rshd wetty tmate upterm sshx"),
        ("net.shell", r"--help|--version|(^|\s)-[tTV](\s|$)"),
    ),
    **dict.fromkeys(listed("xterm uxterm rxvt urxvt"), ("net.shell", r"^(?!.*-d(isplay)?\s+[\w.]+:)")),
    **dict.fromkeys(
        listed("timedatectl hwclock ntpdate adjtimex"), ("kernel.clock", r"^$|--help|show|status|list|-r\b")
    ),
    **dict.fromkeys(listed("ztcp zsocket"), ("net.socket", r"(?!)")),
    **dict.fromkeys(
        listed("xhost gcore criu reptyr newuidmap newgidmap"), ("kernel.namespace", r"^$|--help|--version|check")
    ),
    **dict.fromkeys(
        listed(
            "msfvenom msfconsole msfcli meterpreter linpeas.sh linenum.sh mimikatz hydra john hashcat "
            "sqlmap responder unshadow gtfonow deepce.sh amicontained traitor"
        ),
        ("privilege.become", r"--help|--version"),
    ),
    "cdk": ("privilege.become", r"^(?!(auto-escape|eva\w*|run|kcurl|ectl|ucurl|dcurl|nc|probe)(\s|$))"),
}


@program(" ".join(_PURPOSE))
def _purpose(call: Call) -> str | None:
    kind, harmless = _PURPOSE.get(re.sub(r"-(legacy|nft)$", "", call.name)) or _PURPOSE["mkfs"]
    text = " ".join(solid(arg) for arg in call.args)
    quiet = (re.search(harmless, text) and not (call.name == "passwd" and "-l" in call.args)) or any(
        arg in ("--help", "--version") for arg in call.args
    )
    if kind == "device.format" and _only_images(call):
        return None
    if not quiet:
        call.emit(kind)
    if call.name in ("at", "batch"):
        call.shell(call.stdin)
    if call.name == "crontab" and kind and call.stdin and not re.search(r"-l", text):
        for line in call.stdin.splitlines():
            found = re.match(r"\s*(?:@\w+|(?:\S+\s+){5})(.+)", line)
            if found and known(found[1]):
                call.shell(found[1])
    return FILE if re.search(harmless, text) else None


def _only_images(call: Call) -> bool:
    """A file system made in an ordinary file is that file's business."""
    if not re.match(r"mk|parted|[csg]?f?disk|e2label|tune2fs|resize2fs|fatlabel|wipefs", call.name):
        return False
    words = call.options().rest
    ordinary = all(call.locate(word)[1] in ("workspace", "scratch") and "/dev/" not in word for word in words)
    return ordinary and any(re.search(r"/|\.\w+$", word) for word in words)


@program("format diskpart cipher")
def _windows(call: Call) -> str | None:
    if call.name != "format" or (call.args and re.match(r"[A-Za-z]:", call.args[0])):
        call.emit("device.format")
    return None


@program("init")
def _init(call: Call) -> str | None:
    if call.args[:1] and call.args[0] in listed("0 1 2 3 4 5 6 s S q u"):
        call.emit("process.power")
    return None


@program("systemctl service rc-service systemd-run busctl dbus-send gdbus invoke-rc.d supervisorctl pm2")
def _service(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    verbs = {word for word in words if not word.startswith("-")}
    if verbs & {*listed("poweroff reboot halt suspend hibernate kexec emergency rescue soft-reboot")} or re.search(
        r"login1|(poweroff|reboot|halt|kexec|rescue|emergency)\.target|\.(Reboot|PowerOff|Halt)\b", " ".join(words)
    ):
        call.emit("process.power")
    elif {"kill", "*"} <= {unglob(verb) for verb in verbs}:
        call.emit("process.killall")
    elif call.name == "systemd-run":
        call.emit("persist.service")
        call.run(
            call.options(
                "pu", ("property", "unit", "uid", "gid", "on-calendar", "on-active", "on-boot"), posix=True
            ).rest
        )
    elif call.name == "systemctl" and verbs & {
        *listed(
            "enable reenable link edit set-default mask disable preset daemon-reexec set-property "
            "set-environment import-environment unmask add-wants"
        )
    }:
        call.emit("persist.service")
    elif verbs & {"stop", "disable", "kill"} and verbs & {
        *listed("firewalld ufw iptables nftables auditd apparmor docker containerd sshd ssh rsyslog fail2ban")
    }:
        call.emit("net.firewall")
    elif verbs & {"stop", "start", "restart", "reload", "kill"} and call.name in ("systemctl", "service", "rc-service"):
        call.emit("process.service")
    return None


@program("mount")
def _mount(call: Call) -> str | None:
    if (
        call.args
        and call.args not in (["-l"], ["--help"], ["-V"], ["--version"])
        and not (call.args[0] in ("-t", "--types") and len(call.args) == 2)
    ):
        call.emit("kernel.mount")
    return f"{ATOM} on / type {ATOM}\n{ATOM} on /workspace type {ATOM}\n"


@program("sysctl")
def _sysctl(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if re.search(r"(^|\s)(-w|--write|-p|-f|--load|--system)|=", text):
        call.emit("kernel.sysctl")
    return ATOM


@program("ip ifconfig route nmcli brctl iw iwconfig macchanger")
def _ip(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if "netns exec" in text or "netns add" in text:
        call.emit("kernel.namespace")
        if "exec" in call.args:
            call.run(call.args[call.args.index("exec") + 2 :])
    elif re.search(r"\b(add|del|delete|set|flush|change|replace|up|down|hw|gw|off|mod|modify|disconnect)\b", text):
        call.emit("net.firewall")
    return ATOM


@program("kill tkill")
def _kill(call: Call) -> str:
    words = [solid(arg) for arg in call.args]
    if any(re.fullmatch(r"-(l|L|-list)", word) for word in words[:1]):
        return ""
    operands = list(words)
    if operands and re.match(r"-(\d+|[A-Za-z]+\w*|-signal.*)$", operands[0]) and len(operands) > 1:
        operands = operands[2:] if operands[0] in ("-s", "-n", "--signal") else operands[1:]
    for operand in operands:
        if operand == "--":
            continue
        if operand in ("-1", "1") or has_glob(operand):
            call.emit("process.killall")
        else:
            call.emit("process.kill", operand)
    return ""


@program("pkill killall killall5 skill xkill fuser slay")
def _pkill(call: Call) -> str:
    options = call.options("sguUGtPFnoc", ("signal", "user", "euid", "uid", "group", "parent", "session"))
    pattern = unglob(options.rest[-1]) if options.rest else ""
    text = " ".join(solid(arg) for arg in call.args)
    by_user = re.search(r"(^|\s)-(u|U|-user|-euid|-uid)", text) is not None
    nothing = pattern.strip(".*^$ ") == ""
    everyone = (
        call.name == "killall5"
        or options.has("v", "inverse")
        or (nothing and (bool(options.rest) or by_user or not text))
    )
    target = re.fullmatch(r"-?f?\s*(init|systemd|dockerd|containerd|sshd|bash|sh|tini|belljar.*)", pattern) is not None
    if call.name == "fuser":
        if options.has("k", "kill"):
            call.emit(
                "process.killall"
                if any(
                    call.locate(path)[1] in ("root", "system", "workspace_root") for path in options.rest if "/" in path
                )
                else "process.kill"
            )
        return ""
    call.emit("process.killall" if everyone or target else "process.kill")
    return ""


@program("systemd-tmpfiles logrotate run-parts start-stop-daemon dbus-daemon")
def _daemon(call: Call) -> str | None:
    options = call.options("xanpcu", ("exec", "startas", "name", "pidfile", "chuid", "user"))
    if call.name == "start-stop-daemon" and options.get("c", "chuid"):
        call.emit("privilege.become")
    for path in options.all("exec", "x", "a", "startas"):
        call.run([path, *options.rest])
    return UNKNOWN


@program("ssh-keygen ssh-import-id ssh-copy-id ssh-add ssh-agent ssh-keyscan")
def _keys(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    if call.name in ("ssh-copy-id", "ssh-import-id"):
        call.emit("persist.keys")
    if call.name == "ssh-keygen" and "-D" in words:
        call.emit("exec.hidden")
    if call.name == "ssh-keygen" and {"-y", "-e", "-p"} & set(words) and "-f" in words[:-1]:
        call.read(words[words.index("-f") + 1])
    if call.name == "ssh-keygen" and "-f" in words and words.index("-f") + 1 < len(words):
        full, kind, _flags = call.locate(words[words.index("-f") + 1])
        if kind in ("system", "exec_hook") or full.startswith("/etc/"):
            call.write(full)
    return FILE if call.name == "ssh-agent" else ATOM


@program("patchelf chrpath install_name_tool objcopy strip ldconfig")
def _binary(call: Call) -> str | None:
    """Tools that change programs in place."""
    for path in call.options(
        "", ("add-needed", "set-rpath", "set-interpreter", "replace-needed", "remove-needed")
    ).rest:
        call.write(path) if call.locate(path)[1] in ("system", "root") else None
    return None
