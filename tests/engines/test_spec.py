"""What can be read from a spec alone."""

from __future__ import annotations

from belljar.engines.spec import IdMap, User


def test_the_outside_id_of_a_user_follows_the_id_maps() -> None:
    assert User(5, 6).outside == (5, 6)
    rootless = User(
        0,
        0,
        (IdMap(0, 1001), IdMap(1, 100000, 65536)),
        (IdMap(0, 1001),),
        root_inside=True,
    )
    assert rootless.outside == (1001, 1001)
    assert User(3, 0, (IdMap(1, 100000, 65536),)).outside[0] == 100002
