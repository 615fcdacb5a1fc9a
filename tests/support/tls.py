"""A certificate authority and a server certificate for 127.0.0.1, made for the run and trusted by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class TlsFiles:
    """Where the certificates lie; `ca_cert` is what a client has to trust."""

    ca_cert: Path
    cert: Path
    key: Path

    @classmethod
    def create(cls, directory: Path) -> TlsFiles:
        """Make an authority and a certificate for 127.0.0.1 and localhost in `directory`."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        files = cls(directory / "ca.pem", directory / "server.pem", directory / "server.key")
        authority.cert_pem.write_to_path(files.ca_cert)
        issued.private_key_pem.write_to_path(files.key)
        for index, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(files.cert, append=index > 0)
        return files

    def server_config(self) -> dict[str, str]:
        """The settings that make a server use these files and ask no certificate of its clients."""
        return {
            "tls-cert-file": str(self.cert),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.ca_cert),
            "tls-auth-clients": "no",
        }
