from __future__ import annotations

from itertools import permutations

from hypothesis import given, strategies as st

from oteval.evaluators.assignment import in_order, longest_order, match_equal, maximum_matching

from .helpers import flat, verdict

relations = st.integers(0, 5).flatmap(
    lambda rights: st.lists(
        st.sets(st.integers(0, rights - 1)) if rights else st.just(set()), max_size=5
    ).map(lambda rows: ([sorted(row) for row in rows], rights))
)


def most_pairs(rows: list[list[int]], rights: int) -> int:
    """Try every assignment of rights, with spares, to the lefts."""
    places = [*range(rights), *[-1] * len(rows)]
    return max(
        sum(right in row for row, right in zip(rows, order, strict=True))
        for order in set(permutations(places, len(rows)))
    )


def longest(rows: list[list[int]], rights: int) -> int:
    """Compute the longest common order by the textbook table."""
    table = [[0] * (rights + 1)]
    for row in rows:
        line = [0]
        for j in range(rights):
            line.append(max(line[-1], table[-1][j + 1], table[-1][j] + (j in row)))
        table.append(line)
    return table[-1][-1]


def is_matching(pairs: list[tuple[int, int]], rows: list[list[int]]) -> bool:
    """Return whether pairs use each side once and only pairs that fit."""
    fits = all(right in rows[left] for left, right in pairs)
    return fits and len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


@given(relations)
def test_the_matching_is_as_large_as_brute_force_finds(relation):
    """No assignment of any permutation pairs more than the matching does."""
    rows, rights = relation

    pairs = maximum_matching(rows, rights)

    assert is_matching(pairs, rows)
    assert len(pairs) == most_pairs(rows, rights)


@given(relations)
def test_the_longest_order_is_as_long_as_the_textbook_says(relation):
    """The bit-parallel form finds pairs that do not cross, as many as there can be."""
    rows, rights = relation
    masks = [sum(1 << i for i, row in enumerate(rows) if j in row) for j in range(rights)]

    pairs = longest_order(masks)

    assert is_matching(pairs, rows)
    assert pairs == sorted(pairs)
    assert [j for _, j in pairs] == sorted(j for _, j in pairs)
    assert len(pairs) == longest(rows, rights)


@given(relations)
def test_the_search_in_order_finds_all_or_nothing(relation):
    """Taking the earliest fit finds all rights exactly when the longest order holds them all."""
    rows, rights = relation

    pairs = in_order(range(len(rows)), range(rights), lambda i, j: j in rows[i])

    assert (pairs is not None) == (longest(rows, rights) == rights)
    assert pairs is None or (is_matching(pairs, rows) and len(pairs) == rights)


@given(st.lists(st.sampled_from("ab")), st.lists(st.sampled_from("ab")))
def test_equal_keys_are_paired_as_multisets(lefts, rights):
    """As many pairs as both sides hold of each key, and a key None equals nothing."""
    pairs = match_equal(enumerate(lefts), enumerate(rights))

    assert len(pairs) == sum(min(lefts.count(key), rights.count(key)) for key in "ab")
    assert match_equal([(0, None)], [(0, None)]) == []


def test_no_recursion_limit():
    """A chain of 5,000 augmentations neither recurses nor gives up."""
    size = 5000
    rows = [[0]] + [[i - 1, i] for i in range(1, size)]

    assert len(maximum_matching(rows[::-1], size)) == size


def test_a_greedy_pairing_would_be_wrong():
    """The call that could stand for either reference leaves the other its only chance."""
    out = flat(("t", {}), ("t", {"a": 1}))
    ref = flat(("t", {"a": 1}), ("t", {"b": 1}))

    found = verdict(out, ref, "unordered", tool_args_match_mode="subset")

    assert found.passed
    assert found.alignment == [(0, 1), (1, 0)]


calls = st.lists(
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2).map(lambda a: ("t", a)),
    max_size=4,
)


@given(calls, calls, st.sampled_from(["exact", "subset", "superset", "callable"]))
def test_calls_are_matched_as_well_as_brute_force_matches_them(out, ref, mode):
    """Settling equal texts first never costs a pair, whatever the relation."""
    tests = {
        "exact": lambda o, r: o == r,
        "subset": lambda o, r: o.items() <= r.items(),
        "superset": lambda o, r: o.items() >= r.items(),
        "callable": lambda o, r: o.get("a") != r.get("b"),
    }
    rows = [[j for j, (_, r) in enumerate(ref) if tests[mode](o, r)] for _, o in out]
    rule = tests[mode] if mode == "callable" else mode

    found = verdict(flat(*out), flat(*ref), "unordered", tool_args_match_mode=rule)

    assert is_matching(found.alignment, rows)
    assert found.matched == most_pairs(rows, len(ref))


def test_many_calls_reversed():
    """2,000 calls against the same in reverse are matched one to one."""
    out = flat(*(("t", {"n": n}) for n in range(2000)))

    found = verdict(out, out[::-1], "unordered")

    assert found.passed
    assert found.alignment == [(n, 1999 - n) for n in range(2000)]
