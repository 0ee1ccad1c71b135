"""The node that is asked how fresh the view of a cluster is."""

from __future__ import annotations

import pytest

from tests.unit.iris_py.nodes import Net


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_view_that_nobody_keeps_fresh_is_asked_for_when_it_is_used(monkeypatch: pytest.MonkeyPatch, is_watched: bool) -> None:
    net = Net(2)
    core, other = net.cores.nodes.values()
    net.join(other)
    group = net.watch(core)
    group.is_watched = is_watched
    used: list[bytes] = []
    monkeypatch.setattr(core.overlay, "use_group", lambda group_id, _now: used.append(group_id))
    net.request(core)
    assert used == ([] if is_watched else [group.id])
