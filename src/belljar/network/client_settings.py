"""Settings for the usual clients in a sandbox with a door: where the proxy is, and which certificates to trust."""

from __future__ import annotations

import hashlib
import re
import struct

from belljar.layout import HOME

PORT = 3128
BUNDLE = f"{HOME}/.belljar-certificates.pem"
JAVA_BUNDLE = f"{HOME}/.belljar-certificates.jks"
APT_SETTINGS = f"{HOME}/.belljar-apt.conf"
SETTINGS = {  # files of clients that take no certificates from the environment
    # "root": apt's own user `_apt` could not read the certificates in the home directory.
    APT_SETTINGS: f'Acquire::https::CaInfo "{BUNDLE}";\nAPT::Sandbox::User "root";\n',
    f"{HOME}/.wgetrc": f"ca_certificate = {BUNDLE}\n",
}

_JAVA = (
    f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={PORT} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={PORT} "
    f"-Dhttp.nonProxyHosts=localhost|127.*|[::1] -Djavax.net.ssl.trustStore={JAVA_BUNDLE}"
)
"""For JAVA_TOOL_OPTIONS, the only variable that Java reads. At each start it prints that it did."""


def environment() -> dict[str, str]:
    """The variables that the usual clients read, in lower and upper case: some know only one of them."""
    proxy = f"http://127.0.0.1:{PORT}"
    named = {
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "ALL_PROXY": proxy,  # not SOCKS: httpx does not start with that, unless it has an extra package
        "NO_PROXY": "localhost,127.0.0.1,::1",
    }
    trusted = dict.fromkeys(
        (
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
            "PIP_CERT",
            "CARGO_HTTP_CAINFO",
            "npm_config_cafile",
        ),
        BUNDLE,
    )
    tools = {
        "npm_config_proxy": proxy,
        "npm_config_https_proxy": proxy,
        "CARGO_HTTP_PROXY": proxy,
        "YARN_HTTP_PROXY": proxy,
        "YARN_HTTPS_PROXY": proxy,
        "NODE_USE_ENV_PROXY": "1",
        "APT_CONFIG": APT_SETTINGS,
        "JAVA_TOOL_OPTIONS": _JAVA,
    }
    return {
        **named,
        **{name.lower(): value for name, value in named.items()},
        **trusted,
        **tools,
    }


def java_bundle(pem: bytes) -> bytes:
    """The certificates as a Java key store (JKS), whose digest needs Java's usual password."""
    import ssl  # here, because it loads slowly and few sandboxes have a door

    blocks = re.findall(
        rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL
    )
    entries = [struct.pack(">III", 0xFEEDFEED, 2, len(blocks))]
    for number, block in enumerate(blocks):
        alias, content = b"%d" % number, ssl.PEM_cert_to_DER_cert(block.decode())
        entries.append(
            struct.pack(">IH", 2, len(alias)) + alias + bytes(8) + b"\x00\x05X.509"
        )
        entries.append(struct.pack(">I", len(content)) + content)
    data = b"".join(entries)
    return (
        data
        + hashlib.sha1(
            "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + data,
            usedforsecurity=False,
        ).digest()
    )
