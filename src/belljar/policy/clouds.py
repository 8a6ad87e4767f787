"""Clouds, mail and uploaders: credentials that they print, files that they hand to others."""

import re

from .call import Call, program
from .marks import FILE, NETWORK, SECRET, SENSITIVE, has, solid
from .network import sends
from .remotes import in_container


@program(
    "mail mailx sendmail mutt swaks msmtp ssmtp slack telegram-send logger mosquitto_pub kcat kafkacat nats "
    "zabbix_sender snmptrap amqp-publish"
)
def _mail(call: Call) -> str | None:
    if re.search(r"(^|\s)(-[CLQ]|sub|--consumer)(\s|$)", " ".join(call.args)):
        return None  # it listens
    if call.name == "logger" and not any(re.match(r"-n|--server|-[dTP]*n", solid(arg)) for arg in call.args):
        return None
    text = call.stdin + "".join(
        call.read(call.args[i + 1])
        for i, arg in enumerate(call.args[:-1])
        if arg in ("-a", "-A", "--attach", "--body", "-f", "--file")
    )
    text += "".join(call.args)
    call.emit(
        "net.send",
        call.text(),
        "raw",
        *(["secret"] if has(text, SECRET) else []),
        *(["sensitive"] if has(text, SENSITIVE) else []),
    )
    for escape in re.findall(r"(?m)^~!\s*(.+)", call.stdin):
        call.shell(escape)
    return None


@program(
    "aws az gcloud doctl heroku vault op pass bw lpass security secret-tool kubectl gh sops keyring "
    "oc helm fly flyctl vercel netlify wrangler gsutil"
)
def _cloud(call: Call) -> str | None:
    """Cloud tools are everyday work, save for the commands whose purpose is to print a credential."""
    text = " ".join(solid(arg) for arg in call.args)
    reads = {
        "aws": r"secretsmanager get-secret-value|sts get-session-token|configure get aws_secret|configure "
        r"export-credentials|ssm get-parameters?.*--with-decryption|iam create-access-key|ecr get-login-password"
        r"$",
        "gcloud": r"auth (application-default )?print-access-token|auth print-identity-token|secrets versions access",
        "az": r"account get-access-token|keyvault secret show",
        "vault": r"(read|kv get).*secret|token lookup|print token",
        "op": r"read|item get|get item",
        "pass": r"show|^\S+/\S+$",
        "bw": r"get",
        "lpass": r"show|export",
        "security": r"find-(generic|internet)-password|dump-keychain|export",
        "secret-tool": r"lookup|search",
        "kubectl": r"get secrets?\b.*(-o|--output|--template)|config view --raw|create token|describe secrets?",
        "oc": r"get secrets?\b.*(-o|--output)|whoami -t",
        "gh": r"auth token|auth status.*(-t\b|--show-token)",
        "sops": r"(^|\s)(-d|--decrypt|decrypt)\b",
        "keyring": r"get",
    }
    if (call.name.startswith("docker-credential-") and "get" in call.args) or (
        call.name in reads and re.search(reads[call.name], text)
    ):
        call.machine.emit("read", call.text(), "secret", program=call.name)
        return SECRET
    if has("".join(call.args), SECRET + SENSITIVE):
        sends(call, "".join(call.args), call.name)
    if call.name in ("kubectl", "oc") and "exec" in call.args and "--" in call.args:
        in_container(call, call.args[call.args.index("--") + 1 :])
    if call.name == "kubectl" and re.match(r"debug node/", text):
        call.emit("kernel.namespace")
    if call.name == "gh" and re.match(r"gist create|release upload|issue create|pr comment", text):
        for path in call.args[2:]:
            if call.locate(path)[1] == "secret" or "sensitive" in call.locate(path)[2]:
                sends(call, call.read(path), "gist")
    if call.name in ("kubectl", "oc") and re.search(
        r"--privileged|privileged[\"']?:\s*true|hostPID|hostPath",
        text
        + call.stdin
        + ("" if "--dry-run" in text else call.named() + call.machine.written(r"\.(ya?ml|json)$", call.state)),
    ):
        call.emit("kernel.engine")
    if "upload" in text:
        for path in call.args:
            sends(call, call.read(path), "cloud") if call.locate(path)[1] == "secret" else None
    if re.match(r"((s3|storage) )?(-\S+ )*(cp|sync|mv|rsync)\s", text):
        paths = [arg for arg in call.args if arg == "-" or (arg[:1] != "-" and re.search(r"[/.~:]", arg))]
        if len(paths) > 1 and re.match(r"s3:|gs:", paths[1]):
            sends(call, call.take(paths[0]), paths[1])
        elif len(paths) > 1 and re.match(r"s3:|gs:", paths[0]) and paths[1] != "-":
            call.write(paths[1], NETWORK)
    if re.match(r"(s3 )?cp (s3|gs):\S+ -|(storage )?cat |api |gist view", text):
        return NETWORK
    return FILE if re.search(r"completion|hook", text) else None


@program(
    "croc wormhole magic-wormhole ffsend pastebinit gist wgetpaste ipfs s3cmd mc b2 gdrive dropbox_uploader "
    "slackcat ntfy transfer termbin hastebin dpaste sprunge"
)
def _uploader(call: Call) -> str | None:
    """Programs whose purpose is to hand files to others."""
    text = call.stdin + "".join(
        call.read(path) for path in call.args if re.search(r"[./~]", path) and "://" not in path
    )
    sends(call, text, call.name)
    return None
