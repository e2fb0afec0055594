"""batchd --metrics: the text against Prometheus' own promtool, the page, and peers that mean harm."""

import concurrent.futures
import http.client
import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import time

import numpy
import pytest

import batchd
from daemons import BUILD, REPO, until

pytestmark = pytest.mark.skipif(
    subprocess.run(["sh", "-c", "ldconfig -p | grep -q libmicrohttpd.so.12"]).returncode != 0,
    reason="libmicrohttpd.so.12 is not installed",
)


class Reader:
    """A client of a daemon's metrics, over TCP or a Unix socket."""

    def __init__(self, d, path=None):
        self.path = path
        # The file of a Unix socket is there before anybody listens.
        found = until("the daemon says where", lambda: re.search(r"metrics at (http://([^:]+):(\d+))?/", d.output()))
        if path is None:
            self.at = found[2], int(found[3])

    def connect(self):
        s = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        s.connect(str(self.path) if self.path else self.at)  # waits if others are before it
        s.settimeout(300)
        return s

    def get(self, path="/metrics", method="GET", **headers):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.connect()
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()


def values(text):
    """{series: number} of Prometheus' text."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(number) for name, _, number in lines}


@pytest.fixture
def reader(make_daemon):
    return Reader(make_daemon("--metrics", "127.0.0.1:0"))


def one_epoch(samples, job="a-run"):
    loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, job=job, arrays="numpy")
    n = sum(1 for _ in loader)
    return loader, n


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is not installed")
def test_promtool_finds_nothing_to_complain_about(reader, samples):
    loader, _ = one_epoch(samples)
    _, text, _ = reader.get()
    made = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert made.returncode == 0 and not made.stdout and not made.stderr, made.stdout + made.stderr
    loader.close()


def test_numbers_are_the_loaders_own(reader, samples):
    loader, n = one_epoch(samples)
    time.sleep(1)  # a status is kept for a second
    _, text, headers = reader.get()
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    seen = values(text)
    by_name = {}
    for series, number in seen.items():
        by_name.setdefault(series.partition("{")[0], []).append(number)
    n_samples = len(loader.dataset)
    assert by_name["batchd_batches_total"] == [n]
    assert by_name["batchd_delivered_samples_total"] == [n_samples]
    assert by_name["batchd_samples_total"][0] >= n_samples
    assert by_name["batchd_wait_seconds_count"][0] == by_name["batchd_wait_seconds_bucket"][-1] > 0
    assert by_name["batchd_wait_seconds_bucket"] == sorted(by_name["batchd_wait_seconds_bucket"])
    assert by_name["batchd_trainers"] == [1]
    assert by_name["batchd_stalled_ranks"] == [0]
    assert 0 <= by_name["batchd_longest_read_seconds"][0] < 300
    assert seen['batchd_build_info{version="%s"}' % batchd.__version__] == 1
    loader.close()


@pytest.mark.parametrize("world", (1, 2))
def test_batches_that_nobody_took_are_not_delivered(make_daemon, tmp_path, world):
    """A loader that is closed while batches are ready, one that leaves an epoch early, and trainers of two ranks: status
    and metrics count what the loops were given, while the loaders are open and afterwards."""
    d = make_daemon("--metrics", f"unix:{tmp_path / 'metrics'}")
    options = dict(arrays="numpy", n_slots=6, job="counted", world_size=world)

    def full():
        status = batchd.status()
        return all(s["ready"] >= 3 for s in status["sessions"]) and status

    def delivered(status):
        return [status["loaders"][0][key] for key in ("batches_delivered", "samples_delivered")]

    loaders = [batchd.DataLoader("random:length=1000,shape=3", 10, rank=rank, **options) for rank in range(world)]
    for _ in range(2):  # the batches of a broken-off epoch that were ready come back unseen
        for loader in loaders:
            for i, _ in enumerate(loader):
                if i == 9:
                    break
    status = until("all slots are full", full)
    assert delivered(status) == [20 * world, 200 * world]
    assert [s["batches"] for s in status["sessions"]] == [20] * world
    until("all slots are full", full)
    for loader in loaders:
        loader.close()
    status = until("they have left", lambda: (s := batchd.status()) and not s["sessions"] and s)
    assert delivered(status) == [20 * world, 200 * world]
    text = Reader(d, tmp_path / "metrics").get()[1]
    assert re.search(rf"^batchd_batches_total\{{.*\}} {20 * world}$", text, re.M), text
    assert re.search(rf"^batchd_delivered_samples_total\{{.*\}} {200 * world}$", text, re.M), text


def test_stages_have_their_seconds(make_daemon, samples, tmp_path):
    """Proves that the seconds of stages and of trainers come from what is seen of them, and only grow."""
    # Without a cache each epoch decodes, so that a look meets it at last.
    d = make_daemon("--metrics", f"unix:{tmp_path / 'metrics'}", config="cache: {decoded: off, jpeg: off}\n")
    loader, _ = one_epoch(samples)
    reader, seen = Reader(d, tmp_path / "metrics"), [{}]

    def decodes():
        for _ in loader:
            pass
        seen.append({k: v for k, v in values(reader.get()[1]).items() if re.match("batchd_(stage|stream)_.*total", k)})
        return [v for k, v in seen[-1].items() if 'stage="decode"' in k and "seconds" in k][0] > 0

    until("a look has met a decoding worker", decodes)
    for before, after in zip(seen, seen[1:], strict=False):
        assert all(after[k] >= v for k, v in before.items())
    for stage in ("read", "decode", "transform"):
        labels = f'{{dataset="imagefolder",run="a-run",uid="{os.geteuid()}",stage="{stage}"}}'
        assert "batchd_stage_seconds_total" + labels in after
        assert after["batchd_stage_rows_total" + labels] >= 96
    loader.close()


def read_bytes(reader, source):
    seen = values(reader.get()[1])
    return sum(n for series, n in seen.items() if series.startswith("batchd_read_bytes") and f'"{source}"' in series)


def test_read_bytes_are_those_of_the_files(make_daemon, samples, tmp_path):
    """Each file once in the first epoch, and the first two batches of the next where no cache has their files."""
    d = make_daemon("--metrics", f"unix:{tmp_path / 'metrics'}")
    reader = Reader(d, tmp_path / "metrics")
    loader = batchd.DataLoader(f"imagefolder:{samples}", batch_size=8, n_slots=2, shuffle=False, arrays="numpy")
    for _ in loader:
        pass
    sizes = [p.stat().st_size for p in sorted(samples.rglob("*")) if p.is_file()]
    once = sum(sizes)
    until("the epoch's files are read", lambda: read_bytes(reader, "file") >= once)
    assert once <= read_bytes(reader, "file") <= once + sum(sorted(sizes)[-16:])
    assert read_bytes(reader, "array") == 0
    loader.close()


def test_read_bytes_of_arrays_are_those_of_their_rows(make_daemon, tmp_path):
    d = make_daemon("--metrics", f"unix:{tmp_path / 'metrics'}")
    reader = Reader(d, tmp_path / "metrics")
    numpy.save(tmp_path / "x.npy", numpy.zeros((64, 3, 16, 16), "uint8"))
    loader = batchd.DataLoader(f"npy:{tmp_path / 'x.npy'}", batch_size=8, n_slots=2, arrays="numpy")
    for _ in loader:
        pass
    row = 3 * 16 * 16
    until("the epoch's rows are copied", lambda: read_bytes(reader, "array") >= 64 * row)
    assert read_bytes(reader, "array") % row == 0 and read_bytes(reader, "file") == 0
    loader.close()


def test_names_are_for_the_datas_own_user(make_daemon, samples, tmp_path):
    """Over TCP any user of the machine may read; over a Unix socket the kernel says who asks."""
    path = tmp_path / "metrics"
    d = make_daemon("--metrics", f"unix:{path}")
    loader, _ = one_epoch(samples, 'the "run"\\')
    own = Reader(d, path)
    text = own.get()[1]
    assert rf'batchd_batches_total{{dataset="imagefolder",run="the \"run\"\\",uid="{os.geteuid()}"}}' in text
    assert str(samples) not in text
    assert str(samples) in own.get("/status.json")[1]
    assert os.stat(path).st_mode & 0o777 == 0o600
    loader.close()
    d.stop()
    assert not path.exists()


@pytest.mark.parametrize("public", ("", "public:"))
@pytest.mark.parametrize("mode", (0o600, 0o660, 0o666))
def test_a_unix_socket_lets_in_the_users_that_may_train(make_daemon, tmp_path, mode, public):
    """Group and mode are those of the socket for trainers, whatever the umask; public: lets in everybody."""
    path = tmp_path / "metrics"
    group = next((g for g in os.getgroups() if g != os.getegid()), 7 if os.geteuid() == 0 else os.getegid())
    before = os.umask(0o077)
    try:
        d = make_daemon("--metrics", f"{public}unix:{path}", config=f"socket_mode: {mode:04o}\nsocket_group: {group}\n")
        until("it listens", lambda: "metrics at" in d.output())
    finally:
        os.umask(before)
    own, trainers = path.stat(), d.socket.stat()
    assert trainers.st_mode & 0o777 == mode and trainers.st_gid == group
    assert own.st_mode & 0o777 == (0o666 if public else mode)
    assert public or own.st_gid == group


def test_over_tcp_no_names_are_told(reader, samples):
    loader, _ = one_epoch(samples, "secret-name")
    time.sleep(1)
    for path in ("/metrics", "/status.json"):
        text = reader.get(path)[1]
        assert "secret-name" not in text and str(samples) not in text
        assert "batchd.sock" not in text
    assert 'run="user ' in reader.get()[1]
    loader.close()


def test_without_the_option_nothing_listens(make_daemon):
    d = make_daemon()
    links = []
    for fd in os.listdir(f"/proc/{d.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the daemon may close one meanwhile
            links.append(os.readlink(f"/proc/{d.pid}/fd/{fd}"))
    inodes = {m[1] for m in map(re.compile(r"socket:\[(\d+)\]").match, links) if m}
    for table in ("tcp", "tcp6"):
        lines = open(f"/proc/{d.pid}/net/{table}").read().splitlines()[1:]
        assert not {line.split()[9] for line in lines} & inodes
    assert "microhttpd" not in open(f"/proc/{d.pid}/maps").read()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("0.0.0.0:9464", "public:"),
        ("[::]:9464", "public:"),
        ("localhost:9464", "a numeric address"),
        ("127.0.0.1", "a numeric address"),
        ("127.0.0.1:65536", "a numeric address"),
        ("unix:relative", "absolute"),
    ],
)
def test_a_wrong_address_is_refused(address, says, tmp_path):
    made = subprocess.run(
        [str(BUILD / "batchd"), "--socket", str(tmp_path / "s"), "--metrics", address], capture_output=True, text=True
    )
    assert made.returncode == 78 and "--metrics" in made.stderr and says in made.stderr


def test_a_port_in_use_leaves_the_daemon_running(make_daemon):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        d = make_daemon("--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
        until("the daemon says why", lambda: "metrics-off" in d.output())
        assert "Address already in use" in d.output()


def test_only_these_requests_are_answered(reader):
    assert reader.get("/")[0] == 200
    assert reader.get("/", "HEAD")[:2] == (200, "")
    assert reader.get("/nothing")[0] == 404
    assert reader.get("/../etc/passwd")[0] == 404
    assert reader.get("/metrics", "POST")[0] == 405
    assert reader.get("/metrics", Host="evil.example:9464")[0] == 403  # a page of the web that rebinds its name
    assert reader.get("/metrics", Host="127.0.0.1.evil.example")[0] == 403
    assert reader.get("/metrics", Host="localhost:1")[0] == 200


def test_the_page_needs_nothing_from_elsewhere(reader):
    _, page, headers = reader.get("/")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?://|src=|@import|url\(", page)
    status = json.loads(reader.get("/status.json")[1])
    for part in ("daemon", "workers", "memory", "cache", "loaders", "sessions", "gpus"):
        assert part in status and f"status.{part}" in page


def test_slow_and_silent_peers_are_thrown_out(reader, samples):
    """More connections than there is room for, each sending two bytes a second; the trainers notice nothing."""
    slow = [reader.connect() for _ in range(24)]
    loader, n = one_epoch(samples)
    assert n > 0
    for s in slow:
        s.setblocking(False)

    def answers():
        for s in slow:
            try:
                s.send(b"G")
            except OSError:
                pass
        if not fresh:
            fresh.append(reader.connect())
            with contextlib.suppress(OSError):
                fresh[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.5)
        if not select.select(fresh, [], [], 0)[0]:
            return False
        with fresh.pop() as s, contextlib.suppress(OSError):
            return s.recv(15).startswith(b"HTTP/1.1 200")

    fresh = []
    until("the slow peers are thrown out", answers)
    for s in slow:
        s.close()
    loader.close()


def is_open(s):
    """Whether a silent connection is still there: the daemon sends nothing on it but its end."""
    return not select.select([s], [], [], 0)[0]


def test_silent_connections_keep_no_reader_out(reader):
    """Sixteen that send nothing: the next one is answered at once, and only the oldest makes room for it."""

    def answered_beside_them():
        silent = [reader.connect() for _ in range(16)]
        assert reader.get()[0] == 200
        n = sum(map(is_open, silent))
        for s in silent:
            s.close()
        return n == 15  # on a machine that stood still for two seconds, their own limit has ended them

    until("a reader is answered while fifteen are silent", answered_beside_them)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_a_users_connections_make_room_for_anothers(make_daemon, tmp_path):
    """Forty connections of one user, and another's that is older than all of them: those of the first make room."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    reader = Reader(make_daemon("--metrics", f"public:unix:{tmp_path}/metrics"), tmp_path / "metrics")
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def answered_at_last():
        with reader.connect() as mine:
            os.seteuid(65534)
            try:
                silent = [reader.connect() for _ in range(40)]
            finally:
                os.seteuid(0)
            until("the others have their part", lambda: sum(map(is_open, silent)) <= 15)
            with contextlib.suppress(OSError):
                mine.sendall(request)
                answer = mine.recv(15)
            n = sum(map(is_open, silent))
            for s in silent:
                s.close()
            return n == 15 and answer.startswith(b"HTTP/1.1 200")

    until("the older connection is answered", answered_at_last)


HOSTILE = [
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 1000 + b"\r\n" * 1 + b"Y: " + b"b" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: x\r\n" % i for i in range(20_000)) + b"\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 50_000,
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"\x16\x03\x01" + bytes(500),
    b"\0" * 5000,
    b"GET\r\n\r\n\r\n",
]


def test_hostile_requests_are_refused(reader):
    """All at once, as the daemon waits ten seconds for the rest of some."""

    def ask(request):
        s = reader.connect()
        try:
            s.sendall(request)
            s.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: s.recv(65536), b""))
        except OSError:
            return b""
        finally:
            s.close()

    with concurrent.futures.ThreadPoolExecutor(len(HOSTILE)) as pool:
        for request, answer in zip(HOSTILE, pool.map(ask, HOSTILE)):
            assert not answer or re.match(rb"HTTP/1\.[01] (4\d\d|501|505)", answer), (request[:80], answer[:80])
    assert reader.get()[0] == 200


def test_a_reader_that_reads_nothing_holds_nobody_up(reader):
    silent = reader.connect()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    silent.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reader.get()[0] == 200
    silent.close()


def test_the_board_and_the_alerts_use_names_that_there_are(reader, samples):
    loader, _ = one_epoch(samples)
    _, text, _ = reader.get()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    for file in (REPO / "systemd/monitoring").iterdir():
        used = set(re.findall(r"\bbatchd_[a-z_]+", file.read_text()))
        assert used, file
        assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} <= names, file
    json.loads((REPO / "systemd/monitoring/grafana.json").read_text())
    if shutil.which("promtool"):
        rules = subprocess.run(
            ["promtool", "check", "rules", str(REPO / "systemd/monitoring/alerts.yaml")], capture_output=True, text=True
        )
        assert rules.returncode == 0, rules.stdout + rules.stderr
    loader.close()
