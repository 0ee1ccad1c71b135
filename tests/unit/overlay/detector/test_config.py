"""Tests of iris_overlay/detector/config.py."""

from __future__ import annotations

import pytest

from iris_overlay.detector.config import DetectorConfig


def test_the_times_add_up_to_less_than_three_seconds() -> None:
    config = DetectorConfig()
    # period + ping + requests + suspicion, and what is left for late timers.
    assert config.detection_s_max == pytest.approx(1.0 + 0.5 + 0.4 + 0.9)
    assert config.detection_s_max <= 3.0 - 0.2 + 1e-9
    assert config.check_s_max == pytest.approx(0.2 + 0.4 + 0.45)


@pytest.mark.parametrize(
    "changes", [{"period_s": 0.0}, {"helpers": -1}, {"probe_timeout_s_min": 0.6}, {"suspicion_s": 0.1}, {"late_s": -0.1}]
)
def test_impossible_configurations_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        DetectorConfig(**changes)  # type: ignore[arg-type]


def test_counts_may_be_none_at_all() -> None:
    config = DetectorConfig(helpers=0, confirmations=0, health_max=0, late_s=0.0)
    assert (config.helpers, config.confirmations, config.health_max, config.late_s) == (0, 0, 0, 0.0)
