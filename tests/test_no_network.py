"""The suite needs no network: sockets to elsewhere are refused, in child processes too."""

import socket
import subprocess
import sys
import threading
import urllib.request

import pytest

ELSEWHERE = "http://192.0.2.1/"  # an address that is set aside for documentation


def test_no_test_reaches_another_machine():
    with pytest.raises(PermissionError, match=r"no network access.*192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 80), timeout=5)
    with pytest.raises(OSError, match="no network access"):
        urllib.request.urlopen(ELSEWHERE, timeout=5)
    for find in (socket.gethostbyname, lambda host: socket.getaddrinfo(host, 443)):
        with pytest.raises(PermissionError, match=r"example\.org"):
            find("example.org")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for send in (lambda to: datagrams.sendto(b"x", to), datagrams.connect_ex):
            with pytest.raises(PermissionError, match="no network access"):
                send(("192.0.2.1", 9))


def test_no_process_that_a_test_starts_reaches_another_machine():
    code = f"import urllib.request as u; u.urlopen({ELSEWHERE!r}, timeout=5)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0 and "no network access" in done.stderr


def test_this_machine_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        thread = threading.Thread(target=lambda: server.accept()[0].close())
        thread.start()
        socket.create_connection(address, timeout=5).close()
        thread.join()
