"""A certificate authority of a test's own, made with openssl(1), and what it signs: PEM files in one folder."""
import os

from processes import find_program, run

DAYS = "2"
LONG_AGO = ["faketime", "-f", "-10d"]


class Authority:
    """`certificate` is what others trust."""

    def __init__(self, folder, name="authority"):
        self.folder = str(folder)
        self.name = name
        os.makedirs(self.folder, exist_ok=True)
        self.key, self.certificate = self._path(f"{name}.key"), self._path(f"{name}.pem")
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS, "-subj", f"/CN={name}",
                      "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", self.key, "-out", self.certificate)

    def _path(self, name):
        return os.path.join(self.folder, name)

    @staticmethod
    def _openssl(*words, before=()):
        run([*before, find_program("openssl"), *words])

    def sign(self, name, is_expired=False):
        """Key and certificate of a server or client, each a path. The one for `localhost` fits no address, only that name."""
        key, wish, certificate, names = (self._path(f"{name}{'.expired' if is_expired else ''}.{end}") for end in ("key", "csr", "pem", "ext"))
        with open(names, "w", encoding="ascii") as file:
            file.write(f"subjectAltName=DNS:{name}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", wish)
        self._openssl("x509", "-req", "-in", wish, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", DAYS,
                      "-extfile", names, "-out", certificate, before=LONG_AGO if is_expired else ())
        return key, certificate
