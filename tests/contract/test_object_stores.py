"""What is of object stores alone: large objects, reading ahead, refusals, credentials, and where scratch files go."""

import json
import logging
import os
import random
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.storage import Entry, Span, remote, s3
from pairmill.storage.remote import Place, RemoteStore
from pairmill.storage.s3 import SMALLEST, S3Store, parts_of
from tests.support.helpers import REPOSITORY, mount, python
from tests.support.objectstores.fixtures import Use
from tests.support.objectstores.proxy import Fault, FaultProxy
from tests.support.objectstores.servers import SECRET_KEY, S3Server, Server

LARGE = random.Random(1).randbytes(20 << 20)


@pytest.fixture(params=["s3", "gs"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue({"s3": "s3_server", "gs": "gcs_server"}[request.param])
    return found


@pytest.fixture
def bucket(server: Server, use: Use) -> str:
    use(server.environment())
    return server.bucket()


@pytest.fixture
def store(bucket: str) -> RemoteStore:
    found = storage.store_for(bucket)
    assert isinstance(found, RemoteStore)
    return found


@pytest.fixture
def proxy(server: Server, bucket: str, use: Use) -> Iterator[FaultProxy]:
    with FaultProxy(server, faults=[]) as proxy:
        use(proxy.environment())
        yield proxy


# --- large objects --------------------------------------------------------------------------------------------------


def test_a_large_object_comes_back_whole_from_anywhere(store: RemoteStore, bucket: str) -> None:
    uri = storage.join(bucket, "large")
    store.write(uri, LARGE)
    assert store.list(bucket) == [Entry("large", len(LARGE))]
    assert store.read(uri) == LARGE
    assert store.read_range(uri, 1 << 20, 9 << 20) == LARGE[1 << 20 : 10 << 20]
    dice = random.Random(2)
    with store.open(uri) as file:
        for _ in range(60):
            start, length = dice.randrange(len(LARGE)), dice.choice([1, 5_000, 300_000, 3_000_000])
            assert file.seek(start) == start
            assert file.read(length) == LARGE[start : start + length]
            assert file.tell() == min(start + length, len(LARGE))
        file.seek(len(LARGE) + 5)
        assert file.read(1) == b""
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)


def test_many_threads_use_one_store(store: RemoteStore, bucket: str) -> None:
    def work(number: int) -> bool:
        uri = storage.join(bucket, str(number % 8))
        store.write(uri, bytes([number % 8]) * 200_000)
        with store.open(uri) as file:
            return file.read() == bytes([number % 8]) * 200_000

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(64)))


def test_a_few_small_ranges_cost_a_few_small_requests(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "table.parquet")
    store.write(uri, LARGE)
    proxy.requests.clear()
    with store.open(uri) as file:
        file.seek(-8, os.SEEK_END)
        file.read(8)
        file.seek(-60_000, os.SEEK_END)
        file.read(60_000)
    sizes = [request.headers.get("range", "") for request in proxy.requests]
    assert len(sizes) <= 3
    for size in filter(None, sizes):
        start, end = map(int, size.removeprefix("bytes=").split("-"))
        assert end - start < remote.FIRST


@pytest.fixture
def large(proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A large object behind a proxy without a request yet, which is read in blocks of 1 MiB."""
    monkeypatch.setattr(remote, "BLOCK", 1 << 20)
    uri = storage.join(bucket, "large")
    storage.store_for(uri).write(uri, LARGE)
    proxy.requests.clear()
    return uri


def test_who_reads_on_has_the_next_blocks_on_their_way_and_no_more(proxy: FaultProxy, large: str) -> None:
    with storage.store_for(large).open(large) as file:
        file.read(2 << 20)
        assert 2 << 20 < _asked(proxy) <= (2 + 2 * remote.AHEAD) << 20
        assert file.read() == LARGE[2 << 20 :]
    assert _asked(proxy) == len(LARGE)  # nothing twice


def test_of_a_long_range_nothing_more_is_asked_for(proxy: FaultProxy, large: str) -> None:
    store, size = storage.store_for(large), (3 << 20) + 7
    assert store.read_range(large, 5, size) == LARGE[5 : 5 + size]
    assert _asked(proxy) == size
    for left in (1 << 19, 5 << 19):
        assert store.read_range(large, len(LARGE) - left, 9 << 20) == LARGE[-left:]


def _asked(proxy: FaultProxy) -> int:
    ranges = [request.headers["range"] for request in list(proxy.requests) if "range" in request.headers]
    return sum(1 + int(end) - int(start) for start, end in (found[6:].split("-") for found in ranges))


def test_memory_is_bounded_whatever_the_size(bucket: str, store: RemoteStore) -> None:
    code = (
        "import re, sys\nfrom pairmill import storage\nuri = sys.argv[1]\nstore = storage.store_for(uri)\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) >> 10\n"
        "store.exists(uri)\nbefore = peak()\n"
        "with store.create(uri) as path, path.open('wb') as file:\n"
        "    for number in range(160): file.write(bytes([number]) * (1 << 20))\n"
        "with store.open(uri) as file:\n    while file.read(1 << 20): pass\n"
        "print(peak() - before)"
    )
    done = python("-c", code, storage.join(bucket, "large"))
    assert (done.returncode, done.stderr) == (0, "")
    assert 8 < int(done.stdout) < 120  # MiB


def test_an_upload_that_fails_leaves_nothing(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "large")
    third = "PUT *partNumber=3*" if bucket.startswith("s3:") else "PUT *upload_id=*"
    proxy.faults = (Fault("status", status=403, on=third),)
    with pytest.raises(StorageError, match="got 403"):
        store.write(uri, LARGE)
    assert proxy.injected["status"]
    proxy.faults = ()
    assert store.list(bucket) == []
    if isinstance(store, s3.S3Store):
        assert "Uploads" not in store._client.list_multipart_uploads(Bucket=bucket.removeprefix("s3://"))


def test_a_copy_of_more_than_one_request_may_copy_is_made_in_parts(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pairmill.storage import s3 as backend

    store = storage.store_for(s3)
    store.write(f"{s3}/source", LARGE)
    monkeypatch.setattr(backend, "COPIED", 8 << 20)
    monkeypatch.setattr(backend, "COPIED_PART", 6 << 20)
    store.copy(f"{s3}/source", f"{s3}/target")
    assert store.read(f"{s3}/target") == LARGE
    assert store._client.head_object(Bucket=s3[5:], Key="target")["ETag"].endswith('-4"')


def test_a_folder_that_a_console_made_is_no_object(store: RemoteStore, bucket: str) -> None:
    store._put(Place(bucket, bucket.split("/")[2], "folder/"), b"", replace=True)
    store.write(storage.join(bucket, "folder", "object"), b"1")
    assert store.list(bucket) == [Entry("folder/object", 1)]
    assert store.list(storage.join(bucket, "folder")) == [Entry("object", 1)]


# --- refusals and credentials ---------------------------------------------------------------------------------------


def operations(uri: str) -> list[Callable[[], object]]:
    store = storage.store_for(uri)
    return [
        lambda: store.exists(uri),
        lambda: store.read(uri),
        lambda: store.list(uri),
        lambda: store.write(uri, b""),
        lambda: store.write(uri, LARGE),
        lambda: store.commit(uri, b""),
        lambda: store.copy(uri, uri + "2"),
    ]


def test_a_bucket_that_is_not_there_is_said(server: Server, bucket: str) -> None:
    absent = f"{server.scheme}://no-such-bucket"
    for operation in operations(f"{absent}/object"):
        with pytest.raises(StorageError, match=f"{absent}: the bucket does not exist") as caught:
            operation()
        assert caught.value.exit_code == 4


def test_wrong_credentials_are_refused_at_once_and_not_shown(
    s3: str, use: Use, caplog: pytest.LogCaptureFixture
) -> None:
    use({"AWS_SECRET_ACCESS_KEY": "wrong-secret"})
    caplog.set_level(logging.INFO)
    for operation in operations(f"{s3}/object"):
        with pytest.raises(StorageError, match="storage refused; got 403") as caught:
            operation()
        told = "".join(traceback.format_exception(caught.value)) + caplog.text
        for secret in ("wrong-secret", SECRET_KEY, "Signature=", "Authorization"):
            assert secret not in told


def test_no_credentials_are_an_error_that_says_where_they_come_from(
    s3: str, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "STORAGE_EMULATOR", "CLOUDSDK"))]:
        monkeypatch.delenv(name)
    use({"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"})
    for uri, hint in (("s3://bucket/x", "AWS_ACCESS_KEY_ID"), ("gs://bucket/x", "Workload Identity")):
        with pytest.raises(StorageError, match=f"{uri}: no usable credentials.*{hint}") as caught:
            storage.store_for(uri).read(uri)
        assert caught.value.exit_code == 4
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3"):
        storage.store_for("minio://bucket/x").read("minio://bucket/x")


def test_a_token_that_is_refused_is_not_shown(
    gcs_server: Server, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    caplog.set_level(logging.INFO)
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": "me@project", "private_key": key.decode()}
    (tmp_path / "key.json").write_text(json.dumps({**account, "token_uri": f"{gcs_server.url}/token"}))
    use({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json"), "PAIRMILL_STORAGE_PATIENCE": "1"})
    with pytest.raises(StorageError, match="no usable credentials; got RefreshError") as caught:
        storage.store_for("gs://bucket/x").read("gs://bucket/x")
    text = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "assertion" not in text
    assert key.decode().splitlines()[5] not in text


def test_an_endpoint_that_nobody_answers_is_said_without_what_was_asked(
    s3: str, use: Use, caplog: pytest.LogCaptureFixture
) -> None:
    use({"AWS_ENDPOINT_URL_S3": "http://user:password@127.0.0.1:9", "PAIRMILL_STORAGE_PATIENCE": "0.2"})
    caplog.set_level(logging.INFO)
    with pytest.raises(StorageError, match=r"no complete answer in \d+ tries.*at 127\.0\.0\.1:9") as caught:
        storage.store_for(s3).read(f"{s3}/x")
    assert "password" not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_minio_is_s3_by_another_name(s3: str) -> None:
    minio = s3.replace("s3:", "minio:")
    storage.store_for(s3).write(f"{s3}/a/b", b"bytes")
    assert storage.store_for(minio).read(f"{minio}/a/b") == b"bytes"
    assert storage.store_for(minio).list(minio) == [Entry("a/b", 5)]


def test_local_paths_need_no_client(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pairmill import storage\nuri = sys.argv[1]\nstore = storage.store_for(uri)\n"
        "store.write(uri, b'x')\nstore.commit(uri + '2', b'x')\nstore.digests([uri])\n"
        "print(sorted({'botocore', 'google.cloud.storage', 'requests', 'urllib3'} & set(sys.modules)))"
    )
    done = python("-c", code, str(tmp_path / "object"))
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_clients_say_nothing_of_their_own(server: Server, bucket: str, use: Use) -> None:
    code = (
        "import sys\nfrom concurrent.futures import ThreadPoolExecutor\nfrom pairmill import storage\n"
        "place = sys.argv[1]\nstore = storage.store_for(place)\n"
        "with ThreadPoolExecutor(80) as pool:\n"
        "    list(pool.map(lambda name: store.write(f'{place}/{name}', b'x'), range(200)))"
    )
    with FaultProxy(server, faults=[Fault("drop", 0.2)]) as proxy:
        use(proxy.environment())
        done = python("-c", code, bucket)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- scratch files --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=1m")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_what_is_written_stands_below_tmpdir_until_it_is_sent(
    store: RemoteStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with store.create(storage.join(bucket, "object")) as path:
        assert path.parent == tmp_path
        path.write_bytes(b"bytes")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    with pytest.raises(PairmillError, match="absent"), store.create(storage.join(bucket, "object")):
        raise AssertionError


def test_a_full_scratch_volume_is_a_storage_error_that_names_tmpdir(
    store: RemoteStore, bucket: str, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(small_disk))
    uri = storage.join(bucket, "object")

    def fill() -> None:
        with store.create(uri) as path:
            path.write_bytes(b"x" * (2 << 20))

    with pytest.raises(StorageError, match=re.escape(f"TMPDIR={small_disk}: no space left")) as caught:
        fill()
    assert caught.value.exit_code == 4
    assert list(small_disk.iterdir()) == []
    assert not store.exists(uri)


def test_an_absent_object_is_an_input_error_even_for_a_copy(store: RemoteStore, bucket: str) -> None:
    with pytest.raises(InputError, match=f"{bucket}/nothing: does not exist"):
        store.copy(f"{bucket}/nothing", f"{bucket}/target")


def test_a_file_system_without_links_commits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store, uri = storage.store_for(str(tmp_path)), str(tmp_path / "record")
    assert [store.commit(uri, b"first"), store.commit(uri, b"second")] == [b"first", b"first"]
    assert os.listdir(tmp_path) == ["record"]


def test_the_server_of_the_tests_refuses_what_came_otherwise_than_it_was_sent(s3_server: S3Server, s3: str) -> None:
    # Else the checksums would prove nothing here.
    from pairmill.retry import Again

    store = storage.store_for(s3)
    assert isinstance(store, RemoteStore)
    place = Place.from_uri(f"{s3}/object")
    with pytest.raises(Again, match="400"), store._failures(place):
        store._client.put_object(  # type: ignore[attr-defined]
            Bucket=place.bucket, Key=place.key, Body=b"bytes", ChecksumSHA256="A" * 43 + "="
        )


def test_the_client_of_s3_is_asked_where_a_bucket_is_and_for_no_bytes_after_that(
    s3_server: S3Server, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = storage.store_for(s3)
    assert isinstance(store, S3Store)
    store.write(f"{s3}/first", b"bytes")

    def refuse(**_: object) -> None:
        raise AssertionError("the client is slow")

    for name in ("get_object", "put_object", "upload_part"):
        monkeypatch.setattr(store._client, name, refuse)
    store.write(f"{s3}/large", LARGE)
    assert store.read(f"{s3}/large") == LARGE
    assert store.commit(f"{s3}/first", b"other") == b"bytes"
    # A bucket that has moved, or whose requests are signed in a way of its own, is the client's again.
    monkeypatch.undo()
    with FaultProxy(s3_server, faults=[Fault("status", status=301, on="GET *", times=1)]) as proxy:
        moved = S3Store("s3")
        for name, value in proxy.environment().items():
            monkeypatch.setenv(name, value)
        assert moved.size(f"{s3}/first") == 5
        assert moved.read(f"{s3}/first") == b"bytes"
        assert [request.method for request in proxy.requests] == ["HEAD", "GET", "GET"]
        assert proxy.injected["status"] == 1
        assert moved._signed.knows(Place.from_uri(s3).bucket)
        request = moved._signed._last.request
        request.headers["Authorization"] = "AWS pairmill-access:signature"
        moved._signed._routes.clear()
        moved._signed.learn(Place.from_uri(f"{s3}/first"))
        assert not moved._signed.knows(Place.from_uri(s3).bucket)


@pytest.mark.parametrize("seed", range(50))
def test_parts_of_what_is_joined_have_all_bytes_in_order_and_none_is_too_short(seed: int) -> None:
    dice = random.Random(seed)
    pieces: list[bytes | Span] = []
    for number in range(dice.randrange(1, 12)):
        start, size = dice.randrange(3) * 7, int(2 ** dice.uniform(0, 25))
        pieces.append(bytes(dice.randrange(1, 2000)) if dice.random() < 0.3 else Span(f"{number}", start, start + size))
    parts = parts_of(pieces)
    lengths = [sum(map(length, [part] if isinstance(part, Span) else part)) for part in parts]
    assert all(size >= SMALLEST for size in lengths[:-1])
    flat = [piece for part in parts for piece in ([part] if isinstance(part, Span) else part)]
    merged: list[bytes | Span] = []
    for piece in flat:
        last = merged[-1] if merged else b""
        if isinstance(piece, Span) and isinstance(last, Span) and (last.uri, last.stop) == (piece.uri, piece.start):
            merged[-1] = Span(last.uri, last.start, piece.stop)
        else:
            merged.append(piece)
    assert merged == pieces
    # What the store could copy is not sent: less than two parts for each that it copies, or for each that is short.
    sent = sum(size for part, size in zip(parts, lengths, strict=True) if not isinstance(part, Span))
    assert sent <= sum(min(length(piece), 2 * SMALLEST) for piece in pieces)


def length(piece: bytes | Span) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.stop - piece.start


def test_s3_copies_what_is_joined_and_little_is_sent(s3_server: S3Server, s3: str, use: Use) -> None:
    with FaultProxy(s3_server, faults=[]) as proxy:
        use(proxy.environment())
        store, source, target = storage.store_for(s3), f"{s3}/source", f"{s3}/target"
        store.write(source, LARGE)
        proxy.requests.clear()
        store.join(target, [b"head", Span(source, 10, 20 << 20), Span(source, 0, 20 << 20)])
        copied = [request for request in proxy.requests if "x-amz-copy-source" in request.headers]
        sent = [int(request.headers.get("content-length", 0)) for request in proxy.requests if request.method == "PUT"]
        assert len(copied) == 2
        assert sum(sent) == SMALLEST
        assert store.read(target) == b"head" + LARGE[10:] + LARGE


def test_a_pod_reaches_kubeflows_own_store_without_being_told(s3_server: S3Server, use: Use) -> None:
    bucket = s3_server.bucket().replace("s3:", "minio:")
    environment = s3_server.environment()
    keys = {
        "MINIO_ACCESS_KEY": environment["AWS_ACCESS_KEY_ID"],
        "MINIO_SECRET_KEY": environment["AWS_SECRET_ACCESS_KEY"],
    }
    assert s3._of_kubeflow({}) == {}
    assert s3._of_kubeflow({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == {"endpoint_url": s3.KUBEFLOWS}
    assert s3._of_kubeflow({**environment, **keys, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == {}
    code = "import sys\nfrom pairmill import storage\nuri = sys.argv[1]\nstorage.store_for(uri).write(uri + '/a', b'1')"
    told = {"AWS_ENDPOINT_URL": s3_server.url, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    given = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **told}
    for more, code_expected in ((keys, 0), ({}, 1)):
        done = subprocess.run(
            [sys.executable, "-c", code, bucket],
            cwd=REPOSITORY,
            env={**given, **more},
            capture_output=True,
            check=False,
        )
        assert done.returncode == code_expected, done.stderr
    use(environment)
    assert storage.store_for(bucket).list(bucket) == [Entry("a", 1)]


def test_a_digest_is_of_one_whole_object(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, uri = storage.store_for(bucket), f"{bucket}/a"
    assert isinstance(store, RemoteStore)
    store.write(uri, LARGE)
    old = store._head(uri)
    store.write(uri, LARGE[1:])
    true = RemoteStore._head

    def seen(stats: list[remote.Stat]) -> None:
        # What the question for its size was answered with, before it is asked for bytes.
        monkeypatch.setattr(RemoteStore, "_head", lambda self, uri: stats.pop() if stats else true(self, uri))

    seen([old])
    assert store.digest(uri) == digest_bytes(LARGE[1:])
    seen([remote.Stat(len(LARGE), true(store, uri).version)])
    with pytest.raises(StorageError, match=f"is shorter than its store says; got {len(LARGE) - 1} bytes"):
        store.digest(uri)


def test_without_the_servers_one_line_says_how_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_OBJECT_STORES", str(REPOSITORY / "build" / "absent"))
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_storage_faults.py")
    assert done.returncode == 4, done.stdout + done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if "make object-stores" in line]
    assert len(said) == 1
    assert said[0].startswith("ERROR: ")
    assert "build/absent/versitygw" in said[0]
    assert "Traceback" not in done.stdout + done.stderr
