"""The image debian:bookworm-slim, made with debootstrap where no registry of images is reached.

How apt reaches its packages is this machine's affair: the mirrors and proxies of its own apt go into the image, and into
nothing that is committed. The archive is cached; another mirror, another proxy or another month makes another one.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile
import time

import kafka
from processes import run

NAME = "debian:bookworm-slim"
RELEASE = "bookworm"
RELEASES = (RELEASE, f"{RELEASE}-updates", f"{RELEASE}-security")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What a slim image leaves out, and what only fills an archive.
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")


def _mirrors():
    """[(release, address)] from which this machine's apt fetches Debian's main packages of RELEASE."""
    rows = run(["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI) $(COMPONENT)", "Created-By: Packages"])
    fields = [line.split() for line in rows.splitlines()]
    found = {release: address for release, address, component in fields if release in RELEASES and component == "main"}
    if RELEASE not in found:
        raise RuntimeError(f"this machine's apt has no mirror of Debian {RELEASE}, from which to make {NAME}")
    return sorted(found.items())


def _apt_proxies():
    """The lines of this machine's apt settings that name a proxy."""
    lines = run(["apt-config", "dump", "Acquire"]).splitlines()
    return "".join(f"{line}\n" for line in lines if "::proxy" in line.lower() and not line.endswith('"";'))


def proxy_environment():
    """The proxy variables of this process, as build arguments and for debootstrap."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {name: os.environ[name] for name in names + tuple(map(str.upper, names)) if name in os.environ}


def _bootstrap(mirrors, proxies, folder):
    encrypted = any(address.startswith("https") for _, address in mirrors)
    environment = {}
    if proxies and "http_proxy" not in os.environ:
        setting = run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"])
        environment["http_proxy"] = run(["sh", "-c", f'{setting} printf %s "$proxy"'])
    run(["debootstrap", "--variant=minbase"] + (["--include=ca-certificates"] if encrypted else [])
        + [RELEASE, folder, dict(mirrors)[RELEASE]], env=environment, limit=900)
    with open(f"{folder}/etc/apt/sources.list", "w", encoding="ascii") as sources:
        sources.writelines(f"deb {address} {release} main\n" for release, address in mirrors)
    with open(f"{folder}/etc/apt/apt.conf.d/90-this-machine", "w", encoding="ascii") as settings:
        settings.write('Acquire::Languages "none";\n' + proxies)
    if encrypted:
        shutil.copy(CERTIFICATES, folder + CERTIFICATES)


def archive(tell):
    """(path of the image's tar archive in the cache, its key), made now if it is not there."""
    mirrors, proxies = _mirrors(), _apt_proxies()
    key = hashlib.sha256(repr((mirrors, proxies, LEFT_OUT, time.strftime("%Y-%m"))).encode()).hexdigest()[:12]
    path = os.path.join(kafka.cache_folder(), "compose", f"base-{key}.tar")
    if os.path.exists(path):
        return path, key
    tell(f"making {NAME} with debootstrap, once")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    folder = tempfile.mkdtemp(prefix="base-", dir=os.path.dirname(path))
    try:
        _bootstrap(mirrors, proxies, f"{folder}/root")
        run(["tar", "--create", "--file", f"{folder}/tar", "--directory", f"{folder}/root", "--one-file-system", "--numeric-owner"]
            + [f"--exclude=./{name}/*" for name in LEFT_OUT] + ["."])
        os.rename(f"{folder}/tar", path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path, key


def load(engine, tell):
    """Gives the engine the image, unless it has this very one."""
    path, key = archive(tell)
    label = engine.try_docker("image", "inspect", "--format", '{{index .Config.Labels "leasehold.base"}}', NAME)
    if label == key:
        return
    with open(path, "rb") as tar:
        subprocess.run(engine.command("import", "--change", f"LABEL leasehold.base={key}", "--change", 'CMD ["bash"]', "-", NAME),
                       env=engine.environment, stdin=tar, stdout=subprocess.DEVNULL, check=True, timeout=300)
