"""The attacks on a NATS door: their file, and that each runs beside honest clients."""

from __future__ import annotations

import pytest

from benchmarks.nats import attacks
from benchmarks.nats.attackers import ATTACKS
from iris_py.doors.settings import parse_settings
from iris_py.servers.settings_file import check_nats_exposure


def test_the_door_of_the_attacks_has_users() -> None:
    settings = parse_settings(attacks.settings(), "door.toml")
    check_nats_exposure(settings)
    assert set(settings.users) == {"honest", "attacker", "ann"}


def test_nats_server_meets_the_same_attacks() -> None:
    names = [trial.contender for trial in attacks.section(has_peer=True).trials]
    assert names[0::2] == [trial.contender for trial in attacks.section().trials]
    assert names[1::2] == [f"{name}, nats-server" for name in names[0::2]]


@pytest.mark.long
def test_each_attack_leaves_an_honest_client_connected() -> None:
    trials = attacks.section(1 / 10).trials
    assert len(trials) == len(ATTACKS)
    for trial in trials:
        found = {sample.metric: sample.value for sample in trial.measure()}
        assert found["p99 alone"] > 0, trial.contender
        assert found["times"] == pytest.approx(found["p99 beside it"] / found["p99 alone"])
