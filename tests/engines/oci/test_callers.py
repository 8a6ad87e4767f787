"""Id maps of an ordinary user's sandboxes, for every kind of uid."""

from __future__ import annotations

import pytest

from belljar import user_namespace
from belljar.engines.oci import callers
from belljar.engines.spec import IdMap

FIRST = 100_000
LAST = callers.LAST_ID


def outside(maps: tuple[IdMap, ...]) -> dict[int, int]:
    return {
        each.inside + n: each.outside + n for each in maps for n in range(each.count)
    }


@pytest.mark.parametrize("own", [1, 1000, LAST - 1, LAST, LAST + 1, 1_234_567])
@pytest.mark.parametrize("root", [False, True])
def test_inside_ids_map_to_the_caller_or_to_subordinate_ids_only(
    own: int, root: bool
) -> None:
    who = 0 if root else own
    known = outside(callers._shifted(who, own, FIRST))
    assert known[who] == own
    assert set(range(LAST + 1)) <= known.keys(), (
        "every id that an image may know is somebody inside"
    )
    others = [id for inside, id in known.items() if inside != who]
    assert len(set(others)) == len(others)
    assert all(FIRST <= id < FIRST + user_namespace.COUNT for id in others)


@pytest.mark.parametrize("own", [1000, 1_234_567])
def test_files_keep_the_owners_that_the_image_names(own: int) -> None:
    """On disk the files belong to ids of the caller's namespace, in which root is the caller."""
    known = outside(callers._shifted(0, own, FIRST))
    assert all(
        user_namespace.id_inside(known[id], own, FIRST) == id
        for id in (0, 1, 33, 1000, LAST)
    )
    unprivileged = outside(callers._shifted(own, own, FIRST))
    assert all(
        user_namespace.id_inside(unprivileged[id], own, FIRST) == id
        for id in (1, 33, 999, LAST)
    )


def test_no_two_sandboxes_of_root_share_an_id_inside_or_a_quota() -> None:
    """The kernel counts keys for each id: 200 sandboxes whose root is the same id outside would be all there can be."""
    root = callers.Superuser()
    ids = [
        set(outside(root.user(uid, uid, root=inside).uid_map).values())
        for uid, inside in ((70_000, False), (70_001, False), (70_002, True))
    ]
    assert len(set.union(*ids)) == sum(map(len, ids))
    assert all(max(each) < 1 << 31 for each in ids)
