"""The command `iris survey`: a request to every member of a cluster, or a survey per line of standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from iris_py.cli.explanation import explain
from iris_py.cli.many_requests import ask_all
from iris_py.cli.outcome import ExitCode, complain, exit_code
from iris_py.cli.output import Output
from iris_py.json_lines import Line, PayloadLine, payload_fields
from iris_py.logs import one_line
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence
    from pathlib import Path

    import iris_py
    from iris_py.api.options import SurveyOptions
    from iris_py.cli.many_requests import CallOutcome
    from iris_py.cli.payload_options import PayloadSource
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "survey"]


class SurveyReplyLine(PayloadLine, tag="reply", kw_only=True):
    """The reply of one member to a survey."""

    member: str
    """The node id of the member."""
    number: int | UnsetType = UNSET
    """With `--lines` or `--count`: the number of the survey, from 1."""


class MemberFailureLine(msgspec.Struct):
    """A member whose handler raised an exception, in the result of a survey."""

    member: str
    type: str
    text: str


class SurveyResult(Line, kw_only=True):
    """The result of a survey: the number of members, and the outcome of each member without a reply."""

    cluster: str
    members: int
    replies: int
    complete: bool
    """Whether every member has replied."""
    missing: int
    """Number of members that did not answer in time."""
    missing_members: list[str]
    """Their node ids, as far as known."""
    failed: list[MemberFailureLine]
    rejected: list[str]
    """The ids of members that were full."""
    declined: list[str]
    """The ids of members without a handler for surveys."""
    dropped: int
    """Number of replies dropped because the waiting replies held too much memory."""


class SurveyLine(SurveyResult, tag="survey", kw_only=True):
    """The result of one of several surveys (`--lines` or `--count`)."""

    number: int
    seconds: float
    """Duration of the survey, in seconds."""


class FailedSurveyLine(Line, tag="failure"):
    """A survey that ended with an error instead of a result."""

    cluster: str
    number: int
    type: str
    """The class of the error."""
    text: str
    seconds: float


class SurveySummary(SurveyResult, tag="summary", kw_only=True):
    """The result of the survey. Over several surveys, numbers are sums, and a member is named once."""

    surveys: int | UnsetType = UNSET
    """With `--lines` or `--count`: the number of surveys, including failed ones."""


class Surveyed(NamedTuple):
    """A finished survey: its replies, and the final counts of members."""

    replies: list[iris_py.SurveyReply]
    answers: iris_py.Answers


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"survey": (SurveyReplyLine, SurveyLine, FailedSurveyLine, SurveySummary)}


async def survey(
    settings: Settings,
    cluster: str,
    source: PayloadSource,
    options: SurveyOptions,
    *,
    concurrency: int,
    path: Path | None,
    as_json: bool,
) -> int:
    """Send a survey and print the replies as they arrive; with `--lines` or `--count`, send several.

    Args:
        settings: The settings of the node.
        cluster: The name.
        source: The payloads.
        options: The options of each survey.
        concurrency: Maximum number of concurrent surveys.
        path: The file for replies; None for standard output.
        as_json: Whether to print JSON.

    Returns:
        The exit code.
    """
    config, stop_after = settings.load(), options.get("stop_after")
    lone = source.read_lone(config.max_message_bytes)
    with Output(as_json=as_json, path=path) as output:
        async with settings.visit(config) as node:

            def begin(payload: bytes) -> iris_py.Survey:
                return node.survey(cluster, payload, **options)

            async def ask(payload: bytes) -> Surveyed:
                asked = begin(payload)
                return Surveyed([reply async for reply in asked], asked.answers)

            if lone is None:
                outcomes = ask_all(ask, source.batches(config.max_message_bytes), concurrency)
                return await _print_all(output, cluster, outcomes, stop_after, settings.options)
            asked, replies = begin(lone), 0
            async for reply in asked:
                replies += 1
                _print_reply(output, reply)
        answers = asked.answers
        output.line(SurveySummary(**_result_of(cluster, replies, answers)))
    if not as_json:
        _complain_of(cluster, answers, is_stopped=replies == stop_after)
    return _code_of(replies, answers, stop_after)


async def _print_all(
    output: Output,
    cluster: str,
    outcomes: AsyncIterator[CallOutcome[Surveyed]],
    stop_after: int | None,
    options: Collection[str],
) -> int:
    """Print the replies and the result of each survey; return the first exit code other than 0."""
    code, number, total, has_failed = ExitCode.OK, 0, _Total(cluster), False
    async for outcome in outcomes:
        number += 1
        seconds = round(outcome.seconds, 6)
        if outcome.reply is None:
            assert outcome.error is not None
            code, has_failed = code or exit_code(outcome.error), True
            reason = explain(outcome.error, options)
            output.line(FailedSurveyLine(cluster, number, type(outcome.error).__name__, reason, seconds))
            if not output.is_json:
                complain(f"survey {number}: {reason}")
            continue
        replies, answers = outcome.reply
        for reply in replies:
            _print_reply(output, reply, number)
        result = _result_of(cluster, len(replies), answers)
        output.line(SurveyLine(number=number, seconds=seconds, **result))
        total.add(result)
        if not output.is_json:
            _complain_of(cluster, answers, is_stopped=len(replies) == stop_after, begin=f"survey {number}: ")
        code = code or _code_of(len(replies), answers, stop_after)
    output.line(total.summary(number, has_failed=has_failed))
    return code


def _print_reply(output: Output, reply: iris_py.SurveyReply, number: int | None = None) -> None:
    begin = "" if number is None else f"{number}  "
    text = (
        f"{begin}{short_name(reply.member.id, reply.member.name)}  {one_line(reply.payload.decode(errors='backslashreplace'))}"
    )
    counted = UNSET if number is None else number
    output.line(SurveyReplyLine(member=reply.member.id, number=counted, **payload_fields(reply.payload)), text)


class _Result(TypedDict):
    """The fields of a :class:`SurveyResult`."""

    cluster: str
    members: int
    replies: int
    complete: bool
    missing: int
    missing_members: list[str]
    failed: list[MemberFailureLine]
    rejected: list[str]
    declined: list[str]
    dropped: int


class _Total:
    """The sum of several surveys. Members are named once, so the size stays that of one survey."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._members = self._replies = self._missing = self._dropped = 0
        self._is_complete = True
        self._failed: dict[str, MemberFailureLine] = {}
        self._missing_members: dict[str, None] = {}
        self._rejected: dict[str, None] = {}
        self._declined: dict[str, None] = {}

    def add(self, result: _Result) -> None:
        self._members += result["members"]
        self._replies += result["replies"]
        self._missing += result["missing"]
        self._dropped += result["dropped"]
        self._is_complete &= result["complete"]
        self._missing_members |= dict.fromkeys(result["missing_members"])
        self._failed |= {failure.member: failure for failure in result["failed"]}
        self._rejected |= dict.fromkeys(result["rejected"])
        self._declined |= dict.fromkeys(result["declined"])

    def summary(self, surveys: int, *, has_failed: bool) -> SurveySummary:
        return SurveySummary(
            cluster=self._cluster,
            surveys=surveys,
            members=self._members,
            replies=self._replies,
            complete=self._is_complete and not has_failed,
            missing=self._missing,
            missing_members=list(self._missing_members),
            failed=list(self._failed.values()),
            rejected=list(self._rejected),
            declined=list(self._declined),
            dropped=self._dropped,
        )


def _result_of(cluster: str, replies: int, answers: iris_py.Answers) -> _Result:
    return _Result(
        cluster=cluster,
        members=answers.expected,
        replies=replies,
        complete=answers.is_complete,
        missing=answers.missing_count,
        missing_members=[member.id for member in answers.missing],
        failed=[MemberFailureLine(each.member.id, each.type, each.text) for each in answers.failed],
        rejected=[member.id for member in answers.rejected],
        declined=[member.id for member in answers.declined],
        dropped=answers.dropped,
    )


def _code_of(replies: int, answers: iris_py.Answers, stop_after: int | None) -> ExitCode:
    if replies >= (stop_after or 1):
        return ExitCode.OK
    if answers.missing_count:
        return ExitCode.TIMEOUT
    if answers.failed:
        return ExitCode.FAILED
    return ExitCode.OVERLOADED if answers.rejected else ExitCode.OK


def _complain_of(cluster: str, answers: iris_py.Answers, *, is_stopped: bool, begin: str = "") -> None:
    """Report on standard error the members without a reply, unless the survey was stopped early."""
    for failure in answers.failed:
        shown = short_name(failure.member.id, failure.member.name)
        complain(f"{begin}the handler at member {shown} failed with {failure.type}: {failure.text}")
    if answers.rejected:
        complain(f"{begin}{len(answers.rejected)} members of {cluster!r} are full: {_names(answers.rejected)}")
    if answers.missing_count and not is_stopped:
        which = f": {_names(answers.missing)}" if answers.missing else ""
        complain(f"{begin}{answers.missing_count} of {answers.expected} members of {cluster!r} did not answer{which}")


def _names(members: Sequence[iris_py.Member]) -> str:
    return ", ".join(short_name(member.id, member.name) for member in members)
