"""A session's own certificate authority, for hosts to whose https requests the proxy adds headers.

Its key never leaves this process, and only this session's sandbox trusts it. The connection to the real host is
verified with this machine's trusted certificates, as usual.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta

from belljar import environment, resources
from belljar.errors import UsageError

VALID_DAYS = 7


class Authority:
    def __init__(self, trust: str | None = None) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            raise UsageError(
                f"headers for https hosts need the package `cryptography`: {resources.extra('tls')}"
            ) from error
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._issue(
            "Belljar session authority", self._key.public_key(), authority=True
        )
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._client: ssl.SSLContext | None = None
        self._trust = trust

    @property
    def pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return bytes(self._certificate.public_bytes(Encoding.PEM))

    def client_context(self) -> ssl.SSLContext:
        if self._client is None:
            self._client = ssl.create_default_context(cafile=self._trust)
            self._client.set_alpn_protocols(["http/1.1"])
        return self._client

    def server_context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            self._contexts[host] = self._new_server_context(host)
        return self._contexts[host]

    def _new_server_context(self, host: str) -> ssl.SSLContext:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._issue(host, key.public_key(), authority=False)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        private_key = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        # The ssl module reads keys only from files; this one is in memory and has no name.
        handle = os.memfd_create("belljar-leaf", os.MFD_CLOEXEC)
        with os.fdopen(handle, "wb") as file:
            file.write(private_key + certificate.public_bytes(Encoding.PEM))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{handle}")
        return context

    def _issue(self, name: str, public_key: object, *, authority: bool):  # type: ignore[no-untyped-def]
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        issuer = subject if authority else self._certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=VALID_DAYS))
            .add_extension(
                x509.BasicConstraints(
                    ca=authority, path_length=0 if authority else None
                ),
                critical=True,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(public_key),  # type: ignore[arg-type]
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()
                ),
                critical=False,
            )
        )
        if authority:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name)]), critical=False
            )
            builder = builder.add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _general_name(name: str):  # type: ignore[no-untyped-def]
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def trust_bundle() -> bytes:
    """This machine's trusted certificates, as PEM; empty if there are none."""
    paths = ssl.get_default_verify_paths()
    for path in (
        environment.value("SSL_CERT_FILE"),
        paths.cafile,
        paths.openssl_cafile,
        "/etc/ssl/certs/ca-certificates.crt",
    ):
        if path and os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return b""
