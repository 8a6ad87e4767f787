"""The certificates and credentials of a cluster, made with openssl."""

from __future__ import annotations

import json
import subprocess

from tests.kubernetes.layout import (
    ADMIN,
    CONTROL,
    CONTROLLER,
    NODES,
    SCHEDULER,
    Layout,
    address,
)

DAYS = "2"
_USERS = {
    ADMIN: "admin",
    CONTROLLER: "system:kube-controller-manager",
    SCHEDULER: "system:kube-scheduler",
}


def make(layout: Layout) -> None:
    layout.pki.mkdir(mode=0o700)
    _openssl(layout, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days",
             DAYS, "-subj", "/CN=belljar-test", "-addext", "basicConstraints=critical,CA:TRUE",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    names = ",".join(
        [
            *(f"DNS:kubernetes{end}" for end in ("", ".default", ".default.svc")),
            f"IP:{CONTROL}",
        ]
    )
    _certificate(
        layout,
        "apiserver",
        "/CN=kube-apiserver",
        f"subjectAltName={names}\nextendedKeyUsage=serverAuth",
    )
    _certificate(
        layout,
        "to-kubelet",
        "/O=system:masters/CN=apiserver-to-kubelet",
        "extendedKeyUsage=clientAuth",
    )
    for node in NODES:
        extension = f"subjectAltName=DNS:{node},IP:{address(node)}\nextendedKeyUsage=serverAuth,clientAuth"
        _certificate(layout, node, f"/O=system:nodes/CN=system:node:{node}", extension)
    _openssl(layout, "genrsa", "-out", "sa.key", "2048")
    _openssl(layout, "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    _tokens(layout)


def _tokens(layout: Layout) -> None:
    rows = [
        f'{layout.token(user)},{name},{user},"{_group(user)}"'
        for user, name in _USERS.items()
    ]
    rows += [
        f'{layout.token(node)},system:node:{node},{node},"system:nodes"'
        for node in NODES
    ]
    (layout.pki / "tokens.csv").write_text("\n".join(rows) + "\n")
    for user in (*_USERS, *NODES):
        kubeconfig(layout, user, layout.token(user))


def _group(user: str) -> str:
    return "system:masters" if user == ADMIN else "system:authenticated"


def kubeconfig(
    layout: Layout, user: str, token: str, namespace: str = "default"
) -> str:
    """Write a client's configuration; JSON is YAML too."""
    cluster = {
        "server": f"https://{CONTROL}:6443",
        "certificate-authority": str(layout.pki / "ca.crt"),
    }
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
    }  # fmt: skip
    layout.kubeconfig(user).write_text(json.dumps(document))
    return str(layout.kubeconfig(user))


def _certificate(layout: Layout, name: str, subject: str, extension: str) -> None:
    (layout.pki / f"{name}.ext").write_text(extension + "\n")
    _openssl(layout, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
             "-subj", subject)  # fmt: skip
    _openssl(layout, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", DAYS, "-out", f"{name}.crt", "-extfile", f"{name}.ext")  # fmt: skip


def _openssl(layout: Layout, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=layout.pki, check=True, capture_output=True)
