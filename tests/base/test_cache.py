"""The cache of verified bytes stays within both of its bounds."""

from __future__ import annotations

from lash.base.cache import ByteCache


def test_the_least_recently_used_is_forgotten_first() -> None:
    """The bound on entries drops the least recently used one."""
    cache = ByteCache(max_count=2, max_bytes=1_000)
    cache.remember(("n", "a"), b"1")
    cache.remember(("n", "b"), b"22")
    assert cache.get(("n", "a")) == b"1"
    cache.remember(("n", "c"), b"333")
    assert (cache.get(("n", "a")), cache.get(("n", "b")), cache.get(("n", "c"))) == (b"1", None, b"333")
    assert (len(cache), cache.size) == (2, 4)


def test_the_bound_on_bytes_holds() -> None:
    """Entries are dropped until the bytes fit; one that would fill more than a quarter is not cached."""
    cache = ByteCache(max_count=100, max_bytes=40)
    for number in range(10):
        cache.remember(("n", str(number)), b"x" * 10)
        assert cache.size <= 40
    assert (len(cache), cache.size) == (4, 40)
    cache.remember(("n", "large"), b"x" * 11)
    assert cache.get(("n", "large")) is None
    assert len(cache) == 4


def test_remembering_and_forgetting_count_once() -> None:
    """The size is right after the same key was added twice and removed twice."""
    cache = ByteCache(max_count=10, max_bytes=100)
    for _ in range(2):
        cache.remember(("n", "a"), b"12345")
    assert cache.size == 5
    for _ in range(2):
        cache.forget(("n", "a"))
    assert (cache.size, len(cache)) == (0, 0)


def test_namespaces_are_apart() -> None:
    """The same ref in two namespaces is two entries."""
    cache = ByteCache()
    cache.remember(("a", "x"), b"1")
    assert cache.get(("b", "x")) is None
