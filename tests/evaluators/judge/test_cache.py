"""The cache in memory and its keys."""

from __future__ import annotations

from oteval import MemoryCache
from oteval.evaluators.judge.cache import JudgeCall, make_cache_key


def test_the_memory_cache_evicts_the_least_recently_used():
    """It stores only calls with an answer."""
    cache = MemoryCache(2)
    for name in ("a", "b"):
        cache.put(JudgeCall(name, "m", answer={"score": True}))
    cache.put(JudgeCall("failed", "m", error="x"))
    assert cache.get("a") is not None

    cache.put(JudgeCall("c", "m", answer={"score": True}))

    assert [cache.get(name) is not None for name in ("a", "b", "c", "failed")] == [
        True,
        False,
        True,
        False,
    ]


def test_a_key_covers_everything_but_the_nonce():
    """Two nonces make the same key; another word makes another."""
    one = make_cache_key({"m": "[[data x 1111111111111111]] a"}, "1" * 16)
    two = make_cache_key({"m": "[[data x 2222222222222222]] a"}, "2" * 16)

    assert one == two
    assert one != make_cache_key({"m": "[[data x 1111111111111111]] b"}, "1" * 16)
