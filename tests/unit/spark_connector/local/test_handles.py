"""A survey of a task before its agent knows of it."""

from __future__ import annotations

import dataclasses

import pytest

from spark_connector.local.handles import LocalSurvey


def test_of_a_survey_that_has_not_begun_nothing_is_known() -> None:
    survey = LocalSurvey(lambda: pytest.fail("nobody has asked for it"), None)
    assert dataclasses.astuple(survey.answers) == ((), 0, 0, (), (), (), (), 0)
    assert repr(survey) == "<Survey not begun>"
