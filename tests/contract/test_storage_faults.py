"""What becomes of requests to object stores that fail: every kind of fault, on both backends, through a real proxy."""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from pairmill import retry, storage
from pairmill.digest import digest_bytes
from pairmill.errors import Changed, InputError, PairmillError, StorageError
from pairmill.storage import Entry, Span, gcs, s3
from pairmill.storage.base import Digested
from pairmill.storage.remote import RemoteStore, Stat
from tests.support.objectstores.fixtures import Use
from tests.support.objectstores.proxy import EVERYTHING, Fault, FaultProxy
from tests.support.objectstores.servers import Server

LARGE = bytes(range(256)) * (9 << 12)  # 9 MiB: written in two parts, or two chunks, and read in several blocks
Through = Callable[..., FaultProxy]


@pytest.fixture(params=["s3", "gs"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue({"s3": "s3_server", "gs": "gcs_server"}[request.param])
    return found


def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pauses a tenth of what they are; patience stays, since a busy machine takes minutes for seconds."""
    monkeypatch.setattr(gcs, "CHUNK", 8 << 20)
    for module in (retry, gcs):
        monkeypatch.setattr(module, "delays", lambda: (0.02, 2.0))
    # Google's client asks for a quarter of this for an upload that is done or gone.
    monkeypatch.setattr(gcs, "patience", lambda: 16.0)


@pytest.fixture
def proxy(server: Server, use: Use, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy without faults yet, by which this process reaches the server; pauses are a tenth of what they are."""
    brief(monkeypatch)
    with FaultProxy(server, seed=7, faults=[]) as proxy:
        use(proxy.environment())
        yield proxy


@pytest.fixture
def bucket(server: Server, proxy: FaultProxy) -> str:
    return server.bucket()


def named(fault: Fault) -> str:
    return f"status {fault.status}" if fault.kind == "status" else fault.kind


PASSING = [
    Fault("latency", 0.5, seconds=0.1),
    Fault("status", 0.15, status=503, burst=3),
    Fault("status", 0.3, status=500),
    Fault("status", 0.3, status=429),
    Fault("drop", 0.3),
    Fault("reset", 0.3),
    Fault("lost", 0.3),
    Fault("cut", 0.4, on="GET *"),
    Fault("truncate", 0.4, on="GET *"),
    Fault("corrupt", 0.5, on="P* *"),
    Fault("stale", 1.0, seconds=0.3),
]


@pytest.mark.parametrize("fault", PASSING, ids=named)
def test_every_fault_comes_whatever_is_drawn(fault: Fault) -> None:
    most = math.ceil(1.5 / fault.rate)
    for seed in range(300):
        proxy = FaultProxy(cast(Server, None), seed=seed, faults=[fault])
        drawn = [proxy.draw("PUT", f"/bucket/large?{seed}", b"x") or proxy.draw("GET", "/") for _ in range(most)]
        assert any(fault.kind in one for one in drawn), seed
        assert not FaultProxy(cast(Server, None), seed=seed, faults=[Fault("corrupt")]).draw("PUT", "/", b"")


@pytest.mark.parametrize("fault", PASSING, ids=named)
def test_what_passes_changes_nothing(proxy: FaultProxy, bucket: str, fault: Fault) -> None:
    store = storage.store_for(bucket)
    proxy.faults = (fault,)
    for number in range(4):
        uri = storage.join(bucket, f"object {number}")
        data = str(number).encode() * 1000
        store.write(uri, data)
        assert store.read(uri) == data
        assert store.exists(uri)
        assert store.commit(uri + "-record", data) == data
        assert store.commit(uri + "-record", b"other") == data
        store.copy(uri, uri + "-copy")
        assert store.size(uri + "-copy") == 1000
        assert store.read_range(uri, 990, 20) == data[:10]
    store.delete(storage.join(bucket, "object 0"))
    time.sleep(0.3)  # as long as listings are stale
    names = [f"object {number}{kind}" for number in range(4) for kind in ("", "-copy", "-record")]
    assert [entry.path for entry in store.list(bucket)] == names[1:]
    assert proxy.injected[fault.kind]


@pytest.mark.parametrize("fault", [fault for fault in PASSING if fault.kind not in {"latency", "stale"}], ids=named)
def test_a_large_object_is_whole_whatever_passes(proxy: FaultProxy, bucket: str, fault: Fault) -> None:
    # Some uploads are sent anew from their beginning, and under load each takes many seconds: so four faults meet them.
    store, uri = storage.store_for(bucket), storage.join(bucket, "large")
    proxy.faults = (replace(fault, times=4),)
    with store.create(uri) as path:
        path.write_bytes(LARGE)
    proxy.faults = (fault,)
    assert store.read(uri) == LARGE
    with store.open(uri) as file:
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == LARGE
    assert proxy.injected[fault.kind]


@pytest.mark.parametrize("fault", [fault for fault in PASSING if fault.kind not in {"latency", "stale"}], ids=named)
def test_what_is_joined_is_whole_whatever_passes(
    proxy: FaultProxy, bucket: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "160")
    store, source, target = storage.store_for(bucket), storage.join(bucket, "source"), storage.join(bucket, "target")
    store.write(source, LARGE)
    proxy.faults = (replace(fault, times=6, on="*" if fault.on.startswith("GET") else fault.on),)
    made = store.join(target, [b"head", Span(source, 1000, len(LARGE)), b"between", Span(source, 0, 6 << 20)])
    proxy.faults = ()
    expected = b"head" + LARGE[1000:] + b"between" + LARGE[: 6 << 20]
    assert store.read(target) == expected
    assert made == Digested(digest_bytes(expected), len(expected))
    assert proxy.injected[fault.kind]


def test_a_source_that_is_replaced_while_it_is_joined_is_an_error(proxy: FaultProxy, bucket: str) -> None:
    store, source, target = storage.store_for(bucket), storage.join(bucket, "source"), storage.join(bucket, "target")
    store.write(source, LARGE)
    proxy.faults = (Fault("status", status=412, code="PreconditionFailed", on="GET *source*", times=1),)
    with pytest.raises(PairmillError) as caught:
        store.join(target, [Span(source, 0, len(LARGE))])
    assert caught.value.exit_code in {3, 4}
    assert not store.exists(target)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_bad_day_many_threads_write_and_read_what_is_right(proxy: FaultProxy, bucket: str, seed: int) -> None:
    store = storage.store_for(bucket)
    proxy.seed, proxy.faults = seed, EVERYTHING

    def work(number: int) -> bytes:
        uri = storage.join(bucket, f"{number}")
        store.write(uri, f"{number}".encode() * 1000)
        # Of each pair one wins, and the other knows it.
        return store.read(uri)[:2] + store.commit(storage.join(bucket, f"record-{number // 2}"), f"{number}".encode())

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(work, range(32)))
    proxy.faults = ()
    stands = [store.read(storage.join(bucket, f"record-{number}")) for number in range(16)]
    assert told == [f"{number}{number}".encode()[:2] + stands[number // 2] for number in range(32)]
    assert all(int(record) // 2 == number for number, record in enumerate(stands))
    assert len(store.list(bucket)) == 48


@pytest.mark.serial
def test_what_never_passes_ends_in_bounded_time(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "object")
    store.write(uri, b"bytes")
    # As many tries as with 0.3 s and pauses twice as long.
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "0.15")
    for module in (retry, gcs):
        monkeypatch.setattr(module, "delays", lambda: (0.01, 1.0))
    operations: list[Callable[[], object]] = [
        lambda: store.read(uri),
        lambda: store.exists(uri),
        lambda: store.list(bucket),
        lambda: store.write(uri, b""),
        lambda: store.write(uri, LARGE),
        lambda: store.commit(uri, b""),
        lambda: store.copy(uri, uri + "2"),
        lambda: store.delete(uri),
        lambda: store.digest(uri),
    ]
    for fault, some in (
        (Fault("status"), operations),
        (Fault("reset"), operations[:1]),
        (Fault("lost"), operations[5:6]),
    ):
        proxy.faults = (fault,)
        for operation in some:
            before, begun = len(proxy.requests), time.monotonic()
            with pytest.raises(StorageError, match=r"no complete answer in \d+ tries") as caught:
                operation()
            assert caught.value.exit_code == 4
            assert time.monotonic() - begun < 2
            assert 3 < len(proxy.requests) - before < 120


@pytest.mark.serial
def test_a_pause_that_the_server_asks_for_is_made_unless_it_is_too_long(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "object")
    proxy.faults = (Fault("status", status=429, retry_after="1", times=1),)
    begun = time.monotonic()
    store.write(uri, b"bytes")
    assert 1 <= time.monotonic() - begun < 15  # and not the minute that patience would allow
    assert len(proxy.requests) == 2
    proxy.faults = (Fault("status", status=503, retry_after="3600", times=1),)
    with pytest.raises(StorageError, match="got 503"):
        store.read(uri)
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_does_not_pass_is_not_tried_again(proxy: FaultProxy, bucket: str, status: int) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "object")
    store.list(bucket)
    store.write(uri, b"bytes")
    store.exists(uri + "-")  # so that it is known that the bucket is there
    proxy.requests.clear()
    proxy.faults = (Fault("status", status=status),)
    with pytest.raises(InputError if status == 404 else StorageError) as caught:
        store.read(uri)
    assert caught.value.exit_code == (3 if status == 404 else 4)
    assert uri in str(caught.value)
    assert len(proxy.requests) == 1


def test_a_commit_whose_answer_was_lost_is_ours(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "record")
    proxy.faults = (Fault("lost", on="P* *", times=1),)
    assert store.commit(uri, b"ours") == b"ours"
    assert [request.status for request in proxy.requests[:2]] == [200, 412]
    proxy.faults = (Fault("lost", on="P* *", times=1),)
    assert store.commit(uri, b"another's") == b"ours"


COPY = {"s3": "PUT */target*", "gs": "POST */rewriteTo/*"}


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_a_copy_whose_source_is_written_again_meanwhile_is_made(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch, parts: bool
) -> None:
    if parts:
        monkeypatch.setattr(s3, "COPIED", 1 << 20)
        monkeypatch.setattr(s3, "COPIED_PART", 6 << 20)
    store, source, target = storage.store_for(bucket), f"{bucket}/source", f"{bucket}/target"
    assert isinstance(store, RemoteStore)
    store.write(source, LARGE)
    # Written between the question and the copy: for the server of S3, and twice more because the proxy says so.
    old, true = store._head(source), RemoteStore._head
    store.write(source, LARGE)
    stale = [old] if bucket.startswith("s3") else []
    monkeypatch.setattr(RemoteStore, "_head", lambda self, uri: stale.pop() if stale else true(self, uri))
    store.write(source, LARGE[::-1])
    proxy.faults = (Fault("status", status=412, code="PreconditionFailed", on=COPY[bucket[:2]], times=2),)
    store.copy(source, target)
    assert store.read(target) == LARGE[::-1]
    assert proxy.injected["status"] == 2
    assert not stale


def test_a_copy_of_what_never_rests_is_a_storage_error(
    proxy: FaultProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source, target = storage.store_for(bucket), f"{bucket}/source", f"{bucket}/target"
    store.write(source, b"bytes")
    proxy.requests.clear()
    proxy.faults = (Fault("status", status=412, on=COPY[bucket[:2]]),)
    with pytest.raises(StorageError, match=f"{source}: another object replaced it while it was copied") as caught:
        store.copy(source, target)
    assert caught.value.exit_code == 4
    assert len(proxy.requests) < 40
    stats = [Stat(5, "1"), Stat(6, "2")]
    monkeypatch.setattr(RemoteStore, "_head", lambda *_: stats.pop(0))
    with pytest.raises(StorageError, match="got 6 bytes; expected 5 bytes"):
        store.copy(source, target)
    monkeypatch.undo()
    assert not store.exists(target)


def test_every_answer_that_a_condition_does_not_hold_is_an_error_of_ours(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), f"{bucket}/object"
    store.write(uri, b"bytes")
    proxy.faults = (Fault("status", status=412),)
    for work in (
        lambda: store.exists(uri),
        lambda: store.read(uri),
        lambda: store.list(bucket),
        lambda: store.write(uri, b""),
        lambda: store.write(uri, LARGE),
        lambda: store.delete(uri),
        lambda: store.digest(uri),
    ):
        with pytest.raises(StorageError) as caught:
            work()
        assert caught.value.exit_code == 4


@pytest.mark.parametrize("code", ["BucketNotEmpty", "InvalidBucketState", "ObjectLocked", ""])
def test_a_conflict_that_stays_is_not_tried_again(proxy: FaultProxy, bucket: str, code: str) -> None:
    store, uri = storage.store_for(bucket), f"{bucket}/object"
    store.write(uri, b"bytes")
    for work in (lambda: store.write(uri, b"other"), lambda: store.copy(uri, uri + "-copy"), lambda: store.delete(uri)):
        proxy.requests.clear()
        proxy.faults = (Fault("status", status=409, code=code, on="[PD]* *"),)
        with pytest.raises(StorageError, match=f"got 409 ?{code if bucket.startswith('s3') else ''}") as caught:
            work()
        assert caught.value.exit_code == 4
        assert len([request for request in proxy.requests if request.method not in {"GET", "HEAD"}]) == 1
    proxy.faults = ()
    assert store.read(uri) == b"bytes"


@pytest.mark.parametrize("code", ["OperationAborted", "ConditionalRequestConflict"])
def test_a_conflict_with_what_is_under_way_is_tried_again(
    s3_server: Server, use: Use, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    brief(monkeypatch)
    with FaultProxy(s3_server, faults=[Fault("status", status=409, code=code, times=2)]) as proxy:
        use(proxy.environment())
        uri = f"{s3_server.bucket()}/record"
        assert storage.store_for(uri).commit(uri, b"ours") == b"ours"
        assert proxy.injected["status"] == 2


def test_a_body_that_was_cut_goes_on_from_where_it_was(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "object")
    data = LARGE[: 3 << 20]
    store.write(uri, data)
    with store.open(uri) as file:
        proxy.requests.clear()
        proxy.faults = (Fault("truncate", times=8),)
        file.seek(1000)
        assert file.read() == data[1000:]
    ranges = [tuple(map(int, request.headers["range"].removeprefix("bytes=").split("-"))) for request in proxy.requests]
    ends = {end for _, end in ranges}
    blocks = {min(start for start, stop in ranges if stop == end) for end in ends}
    gone_on = [start for start, _ in ranges if start not in blocks]
    assert len(gone_on) >= 2


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "object")
    store.write(uri, LARGE)
    with store.open(uri) as file:
        assert file.read(1000) == LARGE[:1000]
        store.write(uri, LARGE[::-1])
        file.seek(8 << 20)
        with pytest.raises(Changed, match="changed while it was read"):
            file.read(1000)
    assert store.read(uri) == LARGE[::-1]


def test_a_listing_that_lacks_what_was_just_written_misleads_nobody_else(proxy: FaultProxy, bucket: str) -> None:
    store, uri = storage.store_for(bucket), storage.join(bucket, "record")
    proxy.faults = (Fault("stale", seconds=60),)
    store.write(storage.join(bucket, "object"), b"bytes")
    assert store.commit(uri, b"ours") == b"ours"
    assert store.list(bucket) == []
    assert store.exists(uri)
    assert store.commit(uri, b"other") == b"ours"
    proxy.faults = ()
    assert store.list(bucket) == [Entry("object", 5), Entry("record", 4)]
