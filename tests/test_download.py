"""Downloads, against a server on this machine that breaks in every way we could think of."""

import hashlib
import http.server
import io
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest
import rich.console

from experiments import data_download
from roid_jax.data import download, published

ROOT = pathlib.Path(__file__).parent.parent
CONTENT = np.random.default_rng(0).bytes(3_000_000)
WHOLE = len(CONTENT)
ENTRY = published.Entry("x-v2", "x-v2.hdf5", WHOLE, hashlib.sha256(CONTENT).hexdigest())
QUICK = download.Patience(stall=10.0, tries=2, pause=0.01)
HASTY = QUICK._replace(stall=0.8)  # for servers that fall silent


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves by the way that the first part of the path names."""

    def do_GET(self):
        way = self.path.split("/")[1]
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        self.server.seen.append((way, start))
        getattr(self, f"do_{way}")(start)

    def send(self, body, *, start=0, status=None, length=None, **headers):
        self.send_response(status or (206 if start else 200))
        if start:
            headers.setdefault("Content_Range", f"bytes {start}-{WHOLE - 1}/{WHOLE}")
        if length != "none":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_right(self, start):
        self.send(CONTENT[start:], start=start)

    def do_broken(self, start):
        self.send(b"sorry", status=500)

    def do_missing(self, start):
        self.send(b"who?", status=404)

    def do_drops(self, start):
        rest = CONTENT[start:]
        self.send(rest[: 1_200_000 if start == 0 else WHOLE], start=start, length=len(rest))

    def do_always_drops(self, start):
        rest = CONTENT[start:]
        self.send(rest[:300_000], start=start, length=len(rest))

    def do_stalls(self, start):
        self.send(CONTENT[:1_500_000], length=WHOLE)
        self.server.over.wait()

    def do_without_ranges(self, start):
        self.send(CONTENT)

    def do_other_range(self, start):
        if start:
            self.send(CONTENT[7:], start=start, Content_Range=f"bytes 7-{WHOLE - 1}/{WHOLE}")
        else:
            self.send(CONTENT)

    def do_no_such_range(self, start):
        self.send(b"" if start else CONTENT, status=416 if start else 200)

    def do_short(self, start):
        self.send(CONTENT[: WHOLE // 2])

    def do_long(self, start):
        self.send(CONTENT, length=10 * WHOLE)

    def do_forged(self, start):
        self.send(bytes(WHOLE)[start:], start=start)

    def do_page(self, start):
        self.send(b"<p>Log in first", length="none", Content_Type="text/html; charset=utf-8")

    def do_endless(self, start):
        self.send(b"", length="none")
        while not self.server.over.is_set():
            self.wfile.write(bytes(100_000))
            self.server.sent += 100_000

    def do_garbage(self, start):
        self.wfile.write(b"\x00\xff not http\r\n\r\n")

    def do_moved(self, start):
        self.send(b"", status=302, Location=f"/right/{ENTRY.file}")

    def do_elsewhere(self, start):
        self.send(b"", status=302, Location=f"ftp://127.0.0.1/{ENTRY.file}")

    def do_layout(self, start):
        self.send(self.server.layout)

    def do_layout_no_length(self, start):
        self.send(self.server.layout, length="none")

    def do_slow(self, start):
        self.send(b"", start=start, length=WHOLE - start)
        for i in range(start, WHOLE, 50_000):
            self.wfile.write(CONTENT[i : i + 50_000])
            time.sleep(0.02)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # clients that hang up are what we test

    def mirror(self, way):
        return f"http://127.0.0.1:{self.server_port}/{way}/"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server(("127.0.0.1", 0), Handler) as server:
        server.seen, server.sent, server.over = [], 0, threading.Event()
        server.layout = layout()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def fetch(server, tmp_path):
    def fetch(*ways, entry=ENTRY, directory=tmp_path, **keywords):
        mirrors = [server.mirror(way) for way in ways]
        keywords = {"patience": QUICK} | keywords
        return download.fetch(entry, directory, mirrors=mirrors, **keywords)

    return fetch


def layout(keys=("observations", "actions", "rewards", "terminals")):
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key in keys:
            file[key] = np.zeros(3)
    return buffer.getvalue()


def closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def assert_right(path, directory):
    assert path == directory / ENTRY.file and path.read_bytes() == CONTENT
    assert os.listdir(directory) == [ENTRY.file]


def line_of(error):
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_is_fetched_whole_into_a_directory_that_was_not_there(fetch, tmp_path):
    told = []
    directory = tmp_path / "a" / "b"
    path = fetch("right", directory=directory, report=lambda *numbers: told.append(numbers))
    assert_right(path, directory)
    assert told[0] == (0, WHOLE) and told[-1] == (WHOLE, WHOLE) and told == sorted(told)


def test_a_redirect_is_followed(fetch, tmp_path):
    assert_right(fetch("moved"), tmp_path)


@pytest.mark.parametrize(
    "way, words, attempts",
    [
        ("broken", "it answered 500 Internal Server Error", 2),
        ("missing", "it answered 404 Not Found", 1),
        ("stalls", "it was silent for 0.8 s", 3),  # the first brought a good part
        ("short", f"its file has {WHOLE // 2} bytes instead of {WHOLE}", 1),
        ("long", f"its file has {10 * WHOLE} bytes instead of {WHOLE}", 1),
        ("forged", "its file has another sha256 than the published file", 1),
        ("page", "it sent a web page instead of the file", 1),
        ("endless", "its file has another sha256 than the published file", 1),
        ("garbage", "not http", 2),
        ("elsewhere", "unknown url type: ftp", 2),
    ],
)
def test_a_mirror_that_fails_is_followed_by_the_next(server, fetch, tmp_path, way, words, attempts):
    said, patience = [], HASTY if way == "stalls" else QUICK
    assert_right(fetch(way, "right", say=said.append, patience=patience), tmp_path)
    assert [seen[0] for seen in server.seen] == [way] * attempts + ["right"]
    (line,) = said
    assert words in line and line.endswith("trying the next mirror")


def test_a_mirror_where_nobody_listens_is_followed_by_the_next(server, tmp_path):
    mirrors = [f"http://127.0.0.1:{closed_port()}/", server.mirror("right")]
    said = []
    path = download.fetch(ENTRY, tmp_path, mirrors=mirrors, patience=QUICK, say=said.append)
    assert_right(path, tmp_path)
    assert "Connection refused; trying the next mirror" in said[0]


def test_a_dropped_connection_is_resumed_where_it_broke(server, fetch, tmp_path):
    assert_right(fetch("drops"), tmp_path)
    assert server.seen == [("drops", 0), ("drops", 1_200_000)]


def test_the_next_mirror_resumes_what_the_last_one_left(server, fetch, tmp_path):
    assert_right(fetch("stalls", "right", patience=HASTY), tmp_path)
    assert server.seen[-1] == ("right", 1_500_000)


def test_a_mirror_that_brings_little_each_time_is_given_up_and_its_part_kept(
    server, fetch, tmp_path
):
    with pytest.raises(ValueError, match="it ended after 600000 of 3000000 bytes"):
        fetch("always_drops")
    assert os.listdir(tmp_path) == [f"{ENTRY.file}.part"]
    assert_right(fetch("right"), tmp_path)
    assert server.seen[-1] == ("right", 600_000)


@pytest.mark.parametrize("way", ["without_ranges", "other_range", "no_such_range"])
def test_a_server_that_cannot_resume_is_asked_for_the_whole(server, fetch, tmp_path, way):
    (tmp_path / f"{ENTRY.file}.part").write_bytes(CONTENT[:1_000_000])
    told = []
    assert_right(fetch(way, report=lambda done, total: told.append(done)), tmp_path)
    assert told[0] == 0, "a wrong range is refused before a byte of it is taken"
    asked = [start for _, start in server.seen]
    assert asked == ([1_000_000] if way == "without_ranges" else [1_000_000, 0])


@pytest.mark.parametrize("size", [1_000_000, WHOLE, WHOLE + 1])
def test_a_wrong_part_is_thrown_away_and_the_whole_fetched_from_the_same_mirror(
    server, fetch, tmp_path, size
):
    (tmp_path / f"{ENTRY.file}.part").write_bytes(bytes(size))
    assert_right(fetch("right"), tmp_path)
    assert server.seen[-1] == ("right", 0)


def test_a_part_that_is_the_whole_needs_no_server(tmp_path):
    (tmp_path / f"{ENTRY.file}.part").write_bytes(CONTENT)
    assert_right(download.fetch(ENTRY, tmp_path, mirrors=["http://nowhere.invalid/"]), tmp_path)


def test_a_forged_file_leaves_nothing_behind(fetch, tmp_path):
    with pytest.raises(ValueError, match="has another sha256"):
        fetch("forged")
    assert os.listdir(tmp_path) == []


def test_an_endless_body_is_cut_off_at_the_length_of_the_file(server, fetch, tmp_path):
    sizes = []
    with pytest.raises(ValueError, match="has another sha256"):
        fetch("endless", report=lambda done, total: sizes.append(done))
    assert max(sizes) == WHOLE and server.sent < WHOLE + 2**24  # what the sockets' buffers hold
    assert os.listdir(tmp_path) == []


def test_without_any_mirror_the_line_says_what_to_put_where(fetch, tmp_path):
    with pytest.raises(ValueError) as error:
        fetch("missing", "broken")
    line = line_of(error)
    for words in ("404 Not Found", "500 Internal", f"/broken/{ENTRY.file} by hand", "hdf5:<path>"):
        assert words in line
    assert f"into {tmp_path}" in line and os.listdir(tmp_path) == []


def test_without_a_network_there_is_one_line(tmp_path, monkeypatch):
    def fail(*args, **keywords):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(ValueError, match="Name or service not known") as error:
        download.fetch(ENTRY, tmp_path, mirrors=published.MIRRORS, patience=QUICK)
    assert line_of(error).count("Name or service not known") == 3


def test_only_http_and_https_are_opened(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / ENTRY.file).write_bytes(CONTENT)
    with pytest.raises(ValueError, match="unknown url type: file"):
        mirrors = [f"file://{tmp_path}/from/"]
        download.fetch(ENTRY, tmp_path / "to", mirrors=mirrors, patience=QUICK)


def test_what_is_right_already_is_left_alone(server, fetch, tmp_path):
    path = fetch("right")
    before = path.stat().st_mtime_ns
    assert fetch("right") == path and len(server.seen) == 1
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("content", [b"short", bytes(WHOLE)])
def test_a_wrong_file_is_not_overwritten_unless_forced(server, fetch, tmp_path, content):
    path = tmp_path / ENTRY.file
    path.write_bytes(content)
    with pytest.raises(ValueError, match="remove it, or fetch it afresh with --force") as error:
        fetch("right")
    assert str(path) in line_of(error) and path.read_bytes() == content and server.seen == []
    with pytest.raises(ValueError, match="has another sha256"):
        fetch("forged", force=True)
    assert path.read_bytes() == content
    assert_right(fetch("right", force=True), tmp_path)


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_in_the_files_place_is_told_before_anything_is_fetched(
    server, fetch, tmp_path, force
):
    (tmp_path / ENTRY.file).mkdir()
    with pytest.raises(ValueError, match="is there but is no file"):
        fetch("right", force=force)
    assert server.seen == []


def test_a_directory_that_cannot_be_written_gets_one_line(fetch, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Not a directory.*D4RL_DATASET_DIR.*hdf5:") as error:
        fetch("right", directory=tmp_path / "file" / "x")
    line_of(error)


def test_too_little_space_is_told_before_anything_is_fetched(server, fetch, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=WHOLE - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match="No space left on device") as error:
        fetch("right")
    line_of(error)
    assert server.seen == [] and os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_midway_gets_one_line_and_the_part_is_resumed(server, fetch, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # no file may grow beyond
    try:
        with pytest.raises(ValueError, match=r"cannot keep x-v2\.hdf5 .*File too large") as error:
            fetch("right", "right")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    line_of(error)
    assert os.listdir(tmp_path) == [f"{ENTRY.file}.part"]
    assert len(server.seen) == 1, "another mirror does not make the disk larger"
    assert_right(fetch("right"), tmp_path)
    assert server.seen[-1] == ("right", 1_000_000)


UNKNOWN = ENTRY._replace(bytes=None, sha256=None)


def test_without_a_checksum_length_and_layout_are_checked_and_the_user_told(server, fetch):
    said = []
    path = fetch("layout_no_length", "right", "layout", entry=UNKNOWN, say=said.append)
    assert path.read_bytes() == server.layout
    first, second, third, fourth = said
    assert "it does not tell the file's length" in first
    assert second == fourth == "x-v2.hdf5 comes over plain http, and no checksum of it is known"
    assert "its file does not open as HDF5" in third


def test_without_a_checksum_a_missing_key_is_refused(server, fetch, tmp_path):
    server.layout = layout(keys=("observations", "actions", "rewards"))
    with pytest.raises(ValueError, match="its file has no 'terminals'"):
        fetch("layout", entry=UNKNOWN)
    assert os.listdir(tmp_path) == []


def test_without_a_checksum_nothing_is_resumed(server, fetch, tmp_path):
    (tmp_path / f"{ENTRY.file}.part").write_bytes(server.layout[:100])
    assert fetch("layout", entry=UNKNOWN).read_bytes() == server.layout
    assert server.seen == [("layout", 0)]


def start_process(server, directory, way):
    """Downloads in a process of its own, and prints as soon as the first megabyte is there."""
    program = f"""
import pathlib
from roid_jax.data import download, published

def report(done, total):
    if done > 10**6:
        print(done, flush=True)

entry = published.Entry{tuple(ENTRY)!r}
download.fetch(entry, pathlib.Path({str(directory)!r}), mirrors=[{server.mirror(way)!r}],
               report=report)
"""
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)


def test_a_killed_download_leaves_no_whole_file_and_the_next_one_resumes_it(
    server, fetch, tmp_path
):
    with start_process(server, tmp_path, "slow") as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert os.listdir(tmp_path) == [f"{ENTRY.file}.part"]
    part = (tmp_path / f"{ENTRY.file}.part").read_bytes()
    assert 10**6 <= len(part) < WHOLE and CONTENT.startswith(part)
    assert_right(fetch("right"), tmp_path)
    assert server.seen == [("slow", 0), ("right", len(part))]


def test_a_second_process_says_that_there_is_a_first(server, fetch, tmp_path):
    with start_process(server, tmp_path, "slow") as process:
        assert process.stdout.readline()
        with pytest.raises(ValueError, match=r"another process is downloading x-v2\.hdf5; wait"):
            fetch("right")
        process.stdout.read()
    assert process.returncode == 0
    assert_right(tmp_path / ENTRY.file, tmp_path)
    assert server.seen == [("slow", 0)]


def test_many_downloads_at_once_end_in_one_right_file(fetch, tmp_path):
    ends = []

    def once():
        try:
            ends.append(fetch("drops"))
        except ValueError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_right(tmp_path / ENTRY.file, tmp_path)
    assert tmp_path / ENTRY.file in ends
    assert all(end == tmp_path / ENTRY.file or "another process" in end for end in ends)


def test_a_part_renamed_between_opening_and_locking_is_not_written_to(fetch, tmp_path, monkeypatch):
    """The one gap that a lock on the .part itself leaves: its last owner may just have ended."""
    calls, flock = [], download.fcntl.flock

    def late(file, flags):
        calls.append(flags)
        if len(calls) == 1:
            part = tmp_path / f"{ENTRY.file}.part"
            part.write_bytes(CONTENT)
            os.replace(part, tmp_path / ENTRY.file)
        flock(file, flags)

    monkeypatch.setattr(download.fcntl, "flock", late)
    assert_right(fetch("forged"), tmp_path)
    assert len(calls) == 2


def run_command(*, force=False):
    console = rich.console.Console(file=io.StringIO(), width=100)
    data_download.run("d4rl:x-v2", console, force=force)
    return console.file.getvalue()


@pytest.fixture
def command(server, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "entries", lambda: [ENTRY])
    monkeypatch.setattr(published, "MIRRORS", (server.mirror("right"),))
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "chosen"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ROID_JAX_MIRRORS", raising=False)
    return run_command


def test_the_command_fetches_into_the_chosen_directory_and_says_where(command, server, tmp_path):
    text = command()
    path = tmp_path / "chosen" / ENTRY.file
    assert_right(path, tmp_path / "chosen")
    assert "3/3 MB" in text
    assert text.endswith(f"d4rl:x-v2 is here, its sha256 is right: {path}\n")
    assert command() == f"d4rl:x-v2 is already here, its sha256 is right: {path}\n"
    assert len(server.seen) == 1
    assert "d4rl:x-v2 is here" in command(force=True) and len(server.seen) == 2


def test_the_command_finds_what_is_in_d4rls_own_directory(command, server, tmp_path):
    standard = tmp_path / "home" / ".d4rl" / "datasets"
    standard.mkdir(parents=True)
    (standard / ENTRY.file).write_bytes(CONTENT)
    assert f"already here, its sha256 is right: {standard}" in command()
    assert server.seen == []


def test_without_a_chosen_directory_the_command_fetches_into_d4rls_own(
    command, tmp_path, monkeypatch
):
    monkeypatch.delenv("D4RL_DATASET_DIR")
    command()
    directory = tmp_path / "home" / ".d4rl" / "datasets"
    assert_right(directory / ENTRY.file, directory)


def test_the_users_mirrors_are_tried_first(command, server, monkeypatch):
    mirrors = f" {server.mirror('missing')} ,, {server.mirror('short').rstrip('/')}"
    monkeypatch.setenv("ROID_JAX_MIRRORS", mirrors)
    text = command()
    assert [way for way, _ in server.seen] == ["missing", "short", "right"]
    assert "404 Not Found; trying the next mirror" in text


def test_the_command_says_so_where_no_checksum_is_known(command, server, monkeypatch):
    monkeypatch.setattr(published, "entries", lambda: [UNKNOWN])
    monkeypatch.setenv("ROID_JAX_MIRRORS", server.mirror("layout"))
    text = command()
    assert "comes over plain http, and no checksum of it is known" in text
    assert "its layout is right, its checksum is not known" in text


@pytest.mark.parametrize(
    "address", ["ftp://host/", "host", "http://", "http://a:b@host/", "file:/x"]
)
def test_a_mirror_that_is_no_address_is_refused(monkeypatch, address):
    monkeypatch.setenv("ROID_JAX_MIRRORS", address)
    with pytest.raises(ValueError, match="ROID_JAX_MIRRORS has") as error:
        published.mirrors()
    line_of(error)


def test_every_published_set_has_a_length_and_a_checksum():
    entries = published.entries()
    assert all(entry.bytes > 5e7 for entry in entries)
    assert all(re.fullmatch(r"[0-9a-f]{64}", entry.sha256) for entry in entries)
    assert len({entry.sha256 for entry in entries}) == len({e.bytes for e in entries}) == 15
