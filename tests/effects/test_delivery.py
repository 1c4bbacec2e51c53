# ctest: LABEL effects,sanitize TIMEOUT 240
"""One delivery against a receiver behind the SQL gate: what is sent, what each answer means, and that whoever comes late leaves
a final state alone."""
import socket
import subprocess
import threading

import pytest

from fileserver import claim_of
from inbox import Inbox
from processes import free_port

KEY = "delivery/m1"
BODY = '{"to": "you"}'


@pytest.fixture(scope="module", name="inbox_database")
def fixture_inbox_database(postgres):
    database = postgres.create_database("inbox")
    yield database
    database.drop()


@pytest.fixture(name="inbox")
def fixture_inbox(inbox_database):
    with Inbox(inbox_database) as inbox:
        yield inbox


@pytest.fixture(name="deliver")
def fixture_deliver(build, inbox):
    def deliver(fence=5, url=None, timeout_ms=20000, lost_after=None, body=BODY):
        words = [f"{build}/delivery_probe", url or inbox.url, str(timeout_ms), "m1", str(fence), claim_of(fence), body]
        done = subprocess.run(words + ([str(lost_after)] if lost_after is not None else []), stdout=subprocess.PIPE, text=True,
                              timeout=60)
        return done.stdout.split(" ", 3)
    return deliver


def test_delivery__sends_payload_fence_and_key(inbox, deliver):
    assert deliver()[:2] == ["done", "201"]
    assert inbox.requests == [(KEY, 5, claim_of(5), 1, "Bearer probe", BODY, 201)]
    assert inbox.messages() == {KEY: ["accepted", 5, BODY]}


def test_delivery__a_final_state_is_never_left(inbox, deliver):
    """The message is handled; then come a repeat, its successor, and a sender that slept."""
    deliver(7)
    inbox.handle(KEY)
    assert deliver(7)[:2] == ["done", "200"]
    assert deliver(9)[:2] == ["done", "200"]
    assert deliver(5)[:2] == ["retry", "409"]
    assert inbox.messages() == {KEY: ["handled", 7, BODY]}


@pytest.mark.parametrize("status, verdict", ((200, "done"), (204, "done"), (299, "done"), (400, "refused"), (401, "refused"),
                                             (404, "refused"), (408, "retry"), (409, "retry"), (410, "refused"), (425, "retry"),
                                             (429, "retry"), (500, "retry"), (503, "retry")))
def test_delivery__each_answer_has_its_meaning(inbox, deliver, status, verdict):
    inbox.answers.append((status, {}))
    assert deliver()[:3] == [verdict, str(status), "-1"]


def test_delivery__waits_as_long_as_it_is_asked_to_within_reason(inbox, deliver):
    inbox.answers.extend([(503, {"Retry-After": "7"}), (429, {"Retry-After": "999999"}), (503, {"Retry-After": "soon"})])
    assert [deliver()[2] for _ in range(3)] == ["7000", "3600000", "-1"]


@pytest.mark.parametrize("status", (301, 302, 303, 307, 308))
def test_delivery__follows_no_redirect(inbox, deliver, status):
    inbox.answers.append((status, {"Location": inbox.url + "/elsewhere"}))
    assert deliver()[:2] == ["refused", str(status)]
    assert len(inbox.requests) == 1


@pytest.mark.parametrize("url", ("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "127.0.0.1", "http://user:secret@127.0.0.1/",
                                 "http://", ""))
def test_delivery__refuses_what_is_no_plain_http_url(deliver, url):
    assert deliver(url=url or " ") == ["fatal", "delivery_url\n"]


def test_delivery__goes_through_no_proxy_of_the_environment(inbox, deliver, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert deliver()[:2] == ["done", "201"]


def test_delivery__nobody_there_is_to_be_tried_again(deliver):
    assert deliver(url=f"http://127.0.0.1:{free_port()}/")[:2] == ["retry", "0"]


def test_delivery__silence_ends_in_time_and_a_repeat_is_taken_in_once(inbox, deliver):
    inbox.hold.clear()
    assert deliver(timeout_ms=300)[:2] == ["retry", "0"]
    inbox.hold.set()
    assert deliver(7)[0] == "done"
    assert list(inbox.messages()) == [KEY]


def test_delivery__an_answer_without_end_is_bounded(deliver):
    """A receiver that trickles bytes for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def trickle():
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                try:
                    while True:
                        peer.sendall(b"x" * 1000)
                except OSError:
                    pass
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        assert deliver(url=f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_ms=500)[0] == "retry"
        thread.join(10)


def test_delivery__breaks_off_when_the_lease_is_lost(inbox, deliver):
    assert deliver(lost_after=0)[0] == "lost" and inbox.requests == []
    inbox.hold.clear()
    assert deliver(lost_after=2, timeout_ms=30000)[0] == "lost"
