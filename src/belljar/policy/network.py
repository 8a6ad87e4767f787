"""Programs that talk to the network: what they fetch is tainted, what they send is looked at."""

import re

from .call import STDOUT, Call, Options, program, settings
from .files import is_loopback
from .marks import ATOM, ENCODED, FILE, NETWORK, SECRET, SENSITIVE, UNKNOWN, has, known, show, solid, unglob
from .paths import HOME
from .quoting import listed
from .wrappers import SHELLS

_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:[^/@]*@)?(\[[0-9a-f:]+\]|[^/:?#]+)", re.I)
_CURL_VALUED = "AbcCdDeEFhHKmoPQrTtuUwxXYyz"
_VENDOR_HOSTS = {
    "gh": "github",
    "hf": "huggingface",
    "npm": "npm|registry",
    "google": "google",
    "azure": "azure|microsoft",
}
_METADATA = re.compile(
    r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|100\.100\.100\.200|fd00:ec2::254|"
    r"metadata/identity/oauth2|0xa9fea9fe|2852039166",
    re.I,
)
_CURL_LONG = listed(
    "data data-binary data-raw data-urlencode data-ascii json form form-string header output request "
    "user url upload-file cookie cookie-jar config max-time connect-timeout retry proxy user-agent "
    "referer cacert cert key write-out resolve retry-delay retry-max-time output-dir range interface "
    "dump-header unix-socket limit-rate connect-to netrc-file trace engine abstract-unix-socket"
)


def host_of(url: str) -> str:
    found = _HOST.match(unglob(solid(url)))
    return found[1] if found else ""


def metadata(call: Call, url: str) -> None:
    """A cloud's metadata service hands out the machine's own credentials."""
    if _METADATA.search(solid(url)):
        call.machine.emit("read", show(url), "secret", program=call.name)
    if re.search(r":237[56]/(v[\d.]+/)?(containers|images|exec|build|volumes|plugins|swarm)", solid(url)):
        call.emit("kernel.engine")


def sends(call: Call, text: str, target: str) -> None:
    """Text leaves for a host. Credentials never may; loopback is this sandbox itself."""
    if is_loopback(host_of(target)):
        return
    flags = [
        name for name, marks in (("secret", SECRET), ("sensitive", SENSITIVE), ("encoded", ENCODED)) if has(text, marks)
    ]
    call.emit("net.send", show(target), *flags)


@program("curl http https httpie xh curlie")
def _curl(call: Call) -> str | None:
    options = call.options(_CURL_VALUED, _CURL_LONG)
    for path in options.all("K", "config"):
        call.args = [*call.args, *settings(call.read(path))]
        options = call.options(_CURL_VALUED, _CURL_LONG)
    urls = options.rest + options.all("url")
    if call.name in ("http", "https", "xh", "httpie"):
        urls = [word for word in options.rest if not re.fullmatch(r"[A-Z]+", word)][:1]
    target = urls[0] if urls else ""
    for value in options.all("unix-socket", "abstract-unix-socket"):
        if "engine" in call.locate(value)[2] or re.search(r"docker|containerd|podman|crio", value):
            call.emit("kernel.engine")
    for url in urls:
        metadata(call, url)
    body = _curl_body(call, options, host_of(target))
    sends(call, body + _url_taint(urls), target) if body or _url_taint(urls) else None
    local = all(url.startswith("file:") for url in urls) and bool(urls)
    text = (
        "".join(call.read(solid(url)[7:]) for url in urls)
        if local
        else NETWORK
        if not is_loopback(host_of(target))
        else UNKNOWN
    )
    if not local:
        call.emit("net.fetch", show(target))
    return _curl_output(call, options, urls, text)


def _curl_body(call: Call, options: Options, host: str) -> str:
    body = ""
    for value in options.all("d", "data", "data-binary", "data-ascii", "data-urlencode", "json"):
        name, at, path = value.partition("@")
        body += (
            call.read(path) if at and (not name or re.fullmatch(r"\w+", name)) and path and " " not in path else value
        )
    for value in options.all("F", "form"):
        attached = re.search(r"=[@<]([^;]+)", value)
        body += call.read(attached[1]) if attached else value
    for value in options.all("data-raw", "form-string", "b", "cookie", "A", "user-agent", "e", "referer"):
        body += value
    for value in options.all("T", "upload-file"):
        body += call.read(value)
    for value in options.all("H", "header"):
        auth = (
            re.match(r"(?i)(authorization|.*(token|key|auth|secret|cookie)[\w-]*)\s*:", value)
            and "leak" not in value.lower()
        )
        vendor = re.search(rf"{SENSITIVE}([a-z]+)", solid(value))
        if vendor and auth and not re.search(_VENDOR_HOSTS.get(vendor[1], vendor[1]), host):
            auth = None
        body += (
            SECRET
            if SECRET in value
            else SENSITIVE
            if SENSITIVE in value and not auth
            else ENCODED
            if ENCODED in value and not re.match(r"(?i)authorization", value)
            else ""
        )
    if call.name in ("http", "https", "xh"):
        body += call.stdin + "".join(word for word in options.rest[1:] if "=" in word)
        for word in options.rest[1:]:
            attached = re.search(r"@(.+)", word)
            body += call.read(attached[1]) if attached else ""
    return body


def _url_taint(urls: list[str]) -> str:
    return "".join(mark for mark in (SECRET, SENSITIVE, ENCODED) for url in urls if mark in url)


def _curl_output(call: Call, options: Options, urls: list[str], text: str) -> str | None:
    targets = options.all("o", "output")
    if (call.name in ("http", "https", "xh") and options.has("d", "download")) or (
        call.name in ("http", "https", "xh") and options.all("d")
    ):
        urls = urls or options.all("d")
        targets = targets + [_basename(url) for url in urls]
    if options.has("O", "remote-name", "remote-name-all", "J"):
        targets = targets + [_basename(url) for url in urls]
    folder = options.get("output-dir")
    for path in targets:
        call.write(f"{folder}/{path}" if folder else path, text)
    for path in options.all("D", "dump-header", "c", "cookie-jar"):
        if path != "-":
            call.write(path)
    if {*targets} <= {*STDOUT}:
        return text
    return ATOM if targets else text


def _basename(url: str) -> str:
    return re.split(r"[?#]", solid(url).rstrip("/"))[0].rsplit("/", 1)[-1] or "index.html"


_WGET_VALUED = "OoaPeUtTQDRAIBldxi"
_WGET_LONG = listed(
    "output-document output-file directory-prefix post-data post-file body-file body-data header config conf-path "
    "use-askpass execute timeout tries user password dir out input-file method"
)


@program(
    "wget wget2 aria2c axel lwp-download lwp-request GET POST lynx w3m links elinks fetch ftp "
    "tftp lftp curlftpfs smbclient"
)
def _wget(call: Call) -> str | None:
    options = call.options(_WGET_VALUED, _WGET_LONG)
    files = [*options.all("config", "conf-path"), *(options.all("i", "input-file") if call.name == "aria2c" else [])]
    files += [str(call.state.env["WGETRC"])] if "WGETRC" in call.state.env and call.name == "wget" else []
    given = [*options.all("e", "execute"), *(call.read(path) for path in files)]
    if given and call.name in ("wget", "wget2", "aria2c"):
        call.args = [*call.args, *settings("\n".join(given))]
        options = call.options(_WGET_VALUED, _WGET_LONG)
    script = call.handed() if call.name in ("lftp", "ftp", "smbclient", "tftp") else ""
    for text in re.findall(r"!\s*([^;'\"\n]+)", script):
        call.shell(text)
    for name in [name for name in options.values if re.match(r"use-askpass|on-(bt-)?download", name)]:
        call.emit("exec.hidden", options.get(name))
    headers = "".join(options.all("header", "U", "user-agent"))
    body = "".join(mark for mark in (SECRET, ENCODED, SENSITIVE) if mark in headers)
    body += "".join(options.all("post-data", "body-data")) + "".join(
        call.read(path) for path in options.all("post-file", "body-file")
    )
    urls = options.rest
    for url in urls:
        metadata(call, url)
    for path in options.all("i", "input-file"):
        call.read(path)
    for path in re.findall(r"(?:^|[\s;'\"])m?(?:put|cp|rsync|mirror -R)\s+([^\s;'\"]+)", script):
        call.read(path)
    target = next((url for url in urls if "." in url or ":" in url), urls[0] if urls else "")
    sends(call, body + _url_taint(urls), target) if body or _url_taint(urls) else None
    local = is_loopback(host_of(target))
    call.emit("net.fetch", show(target))
    text = UNKNOWN if local else NETWORK
    path = options.get("O", "output-document", "out") or (
        ""
        if call.name in ("fetch",) and options.get("o") != "-"
        else options.get("o")
        if call.name == "fetch"
        else ""
        if call.name in ("lynx", "w3m", "links", "elinks", "GET", "lwp-request", "POST")
        else options.get("o")
        if call.name in ("aria2c", "axel")
        else ""
    )
    if call.name in ("tftp", "ftp", "smbclient"):
        return NETWORK
    if path in STDOUT or call.name in ("lynx", "w3m", "links", "elinks", "GET", "lwp-request", "POST"):
        return text
    folder = options.get("P", "directory-prefix", "dir") or (options.get("d") if call.name == "aria2c" else "")
    for url in urls or options.all("i", "input-file") if path or not options.all("i", "input-file") else []:
        name = path or _basename(url)
        call.write(f"{folder}/{name}" if folder else name, text)
    return (
        text
        if re.fullmatch(r"-\w*O-", " ".join(a for a in call.args if a.startswith("-") and a.endswith("O-")))
        else ATOM
    )


@program(
    "nc ncat netcat nc.traditional nc.openbsd socat telnet rlogin rsh pwncat cryptcat sbd websocat "
    "chisel ngrok ligolo frpc"
)
def _netcat(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if call.name == "socat":
        return _socat(call, text)
    if call.name in ("chisel", "ngrok", "frpc", "ligolo"):
        call.emit("net.tunnel")
        return None
    options = call.options(
        "ecgGiIopPqsTVwXxmMOk" if call.name != "nc.openbsd" else "iIpPqsTVwXxmMO",
        ("exec", "sh-exec", "lua-exec", "source-port", "proxy"),
        False,
    )
    command = options.get("e", "c", "exec", "sh-exec", "lua-exec")
    if command:
        call.emit("net.shell")
        call.shell(command)
        return NETWORK
    host = options.rest[0] if options.rest else ""
    host = host_of(host) if "://" in host else host
    if options.has("U", "unixsock"):
        if "engine" in call.locate(host)[2]:
            call.emit("kernel.engine")
        return UNKNOWN
    probing = options.has("z")
    if options.has("l", "listen") or any("l" in flag for flag in options.flags):
        call.emit("net.listen")
        if call.machine.fifos:
            call.emit("net.shell")
        if has(call.stdin, SECRET + SENSITIVE):
            call.emit("net.send", "whoever connects", "sensitive")
        return NETWORK
    local = is_loopback(host) or re.fullmatch(r"[a-z][a-z0-9_-]*", host) is not None
    if not probing:
        call.emit("net.socket", host, *(["local"] if local else []))
        if call.machine.fifos:
            call.emit("net.shell")
        if not local and has(call.stdin, FILE + SECRET + SENSITIVE + ENCODED + UNKNOWN):
            call.emit("net.send", host, "raw", *(["secret"] if has(call.stdin, SECRET) else []))
    return UNKNOWN if local else NETWORK


def _socat(call: Call, text: str) -> str:
    for found in re.findall(
        r"(?i)(?:EXEC|SYSTEM|SHELL):(.+?)(?=,(?:pty|stderr|setsid|sigint|sane|fork|nofork|echo|raw|"
        r"ctty|su)|\s+(?:TCP|UDP|OPENSSL|UNIX|VSOCK|-)|$)",
        text,
    ):
        call.emit("net.shell")
        call.shell(found.strip("'\""))
    for path in re.findall(r"(?i)UNIX[\w-]*:([^,\s]+)", text):
        call.emit("kernel.engine") if "engine" in call.locate(path)[2] else None
    if re.search(r"(?i)(TCP|UDP|OPENSSL|SCTP|SOCKS\w*)\d?(-CONNECT|-LISTEN|-L|-RECV)?:", text):
        remote = re.search(r"(?i)(?:TCP|UDP|OPENSSL)\d?(?:-CONNECT)?:([^:,\s]+)", text)
        local = remote is not None and is_loopback(remote[1])
        call.emit("net.socket", text, *(["local"] if local else []))
    for path in re.findall(r"(?i)(?:FILE|OPEN|GOPEN|CREATE):([^,\s]+)", text):
        call.read(path)
        call.write(path) if re.search(r"(?i)CREATE|wronly", text) else None
    return NETWORK


@program("systemd-socket-activate tcpserver tcpsvd faucet s6-tcpserver")
def _inetd(call: Call) -> str:
    """A program for whoever connects."""
    words = call.options("lEcu", ("listen", "setenv", "fdname"), posix=True).rest
    shells = [index for index, word in enumerate(words) if word.rsplit("/", 1)[-1] in SHELLS]
    call.emit("net.shell") if shells else call.emit("net.listen")
    return call.run(words[shells[0] :] if shells else words)


@program("httpd darkhttpd webfsd mini_httpd thttpd lighttpd")
def _httpd(call: Call) -> None:
    for path in call.args:
        call.serve(path) if path[:1] == "/" else None


@program("dig nslookup host drill ping ping6 traceroute whois getent nping hping3 arping")
def _lookup(call: Call) -> str | None:
    text = "".join(call.args)
    if has(text, SECRET + SENSITIVE + ENCODED) or (FILE in text and call.name not in ("getent", "whois")):
        call.emit("net.send", call.text(), "encoded")
    if call.name == "getent" and call.args[:1]:
        text, key = call.read(f"/etc/{solid(call.args[0])}"), solid("".join(call.args[1:2]))
        return (
            "".join(line + "\n" for line in text.split("\n") if key in line or (not known(key) and HOME in line))
            or FILE
        )
    return NETWORK if call.name in ("dig", "nslookup", "host", "drill", "whois") else None
