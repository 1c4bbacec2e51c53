"""Runs a command in a network of its own, where the broker stands at its usual address and can be cut off.

    unshare --net python3 apart.py PORT SOCKET COMMAND…

127.0.0.1:PORT in there leads through the Unix socket SOCKET out to whoever listens on it (broker_link.py, in the test).
"""
import os
import socket
import subprocess
import sys
import threading


def pump(source, target):
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(listener, path):
    while True:
        client, _ = listener.accept()
        out = socket.socket(socket.AF_UNIX)
        try:
            out.connect(path)
        except OSError:
            client.close()
            continue
        for source, target in ((client, out), (out, client)):
            threading.Thread(target=pump, args=(source, target), daemon=True).start()


def main():
    port, path, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=serve, args=(listener, path), daemon=True).start()
    sys.exit(subprocess.run(["setpriv", "--pdeathsig", "KILL", *command]).returncode)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
