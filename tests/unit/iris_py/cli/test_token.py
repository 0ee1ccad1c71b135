"""`iris token`: tokens are made with the secret alone, and shown to people and programs."""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from iris_py.cli import token as command
from iris_py.cli.app import run
from iris_py.cli.settings import Settings
from iris_py.doors.door_messages import DoorAnnouncement, RevocationReceipt
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.revocations import TOKEN_KEPT_S, TokenRevocation, TotalRevocation
from iris_py.doors.rights import Rights
from iris_py.servers import door_cluster
from iris_py.servers.door_cluster import RevocationReport
from iris_py.servers.tokens import TOKEN_BYTES_MAX, TokenVerifier, make_token
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.doors.revocations import Revocation, RevocationOutcome
    from iris_py.doors.rights import Grant

SECRET, NEXT = Secret(b"k" * 32), Secret(b"n" * 32)
KEYRING = Keyring(SECRET, network="lab")
ID = "0123456789abcdef" * 2
OF_OTHER, ENDED = (
    make_token(keys.primary, subject="ann", role="viewer", lifetime_s=60.0, now=now, token_id=ID)
    for keys, now in ((Keyring(NEXT, network="lab"), time.time()), (KEYRING, 1e9))
)


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the network `lab`, as a user does for all commands."""
    path = tmp_path / "secret"
    path.write_text(f"{SECRET.text}\n")
    path.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("IRIS_SECRET_FILE", str(path))
    monkeypatch.setenv("IRIS_NETWORK", "lab")


def made(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Make a token, which stands alone in the output."""
    assert run(["token", "new", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    return captured.out.strip()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["token", "show", *arguments]) == 0
    return capsys.readouterr().out


def grant_of(token: str, **roles: Rights) -> Grant:
    return TokenVerifier(lambda: KEYRING, roles).verify(token, time.time())


def test_a_new_token_has_a_role(capsys: pytest.CaptureFixture[str]) -> None:
    before = time.time()
    grant = grant_of(made(capsys, "--sub", "ann", "--role", "viewer", "--for", "2h"), viewer=Rights(observe=True))
    assert (grant.subject, grant.rights) == ("ann", (Rights(observe=True),))
    assert before + 7200 <= grant.until <= time.time() + 7201


def test_a_new_token_has_rules(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        *("--request", "quotes", "--request", "db-*", "--survey", "X", "--broadcast", "Y"),
        *("--subscribe", "news.>", "--publish", "notes.{sub}", "--observe", "--remote-errors"),
    ]
    grant = grant_of(made(capsys, "--sub", "ann", *arguments))
    rights = Rights(
        request=("quotes", "db-*"),
        survey=("X",),
        broadcast=("Y",),
        subscribe=("news.>",),
        publish=("notes.{sub}",),
        observe=True,
        remote_errors=True,
    )
    assert grant.rights == (rights,)
    both = grant_of(made(capsys, "--sub", "ann", "--role", "nobody", *arguments), nobody=Rights())
    assert both.rights == (Rights(), rights)


def test_the_subject_is_the_user_and_the_end_an_hour_ahead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "bob")
    before = time.time()
    grant = grant_of(made(capsys, "--observe"))
    assert grant.subject == "bob"
    assert before + 3600 <= grant.until <= time.time() + 3601


def test_each_token_has_an_id_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    ids = {grant_of(made(capsys, "--observe")).token_id for _ in range(3)}
    assert len(ids) == 3


def test_a_new_token_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "new", "--sub", "ann", "--observe", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    grant = grant_of(line.pop("token"))
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(grant.until))
    assert line == {"kind": "token", "id": grant.token_id, "subject": "ann", "until": until}


def test_the_network_is_that_of_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DoorRefusal) as caught:
        grant_of(made(capsys, "--observe", "--network", "other"))
    assert caught.value.name == "token-of-other-network"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new"], "Give --request, another right, or --role"),
        (["new", "--observe", "--for", "soon"], "--for 'soon' is not a duration. Write 90s, 10m, 2h or 1d."),
        (["new", "--observe", "--for", "25h"], "at most 86400 s, which are 24 h"),
        (["new", "--observe", "--for", "0s"], "choose more than 0"),
        (["new", "--observe", "--sub", ""], "a subject has 1 to 128"),
        (["new", "--request", "iris.doors"], "request: 'iris.doors' begins with 'iris.'"),
        (["new", "--publish", "a..b"], "publish: "),
        (["new", "--publish", "a.{sub}", "--sub", "ann.smith"], "'ann.smith' does not fit into rules with {sub}"),
        (["new", "--observe", "--sub", SECRET.text], "a secret or a private key is given in place of a name"),
        (["new", "--observe", "--secret-file", "nowhere"], "nowhere cannot be read"),
        (["show"], "Missing argument 'TOKEN'"),
        (["show", "x"], "TOKEN is no token of a door"),
        (["show", SECRET.text], "TOKEN is no token of a door"),
        (["show", "x" * (TOKEN_BYTES_MAX + 1)], "TOKEN is no token of a door"),
        (["show", "\udcff"], "TOKEN is no token of a door"),
        (["revoke"], "say which tokens to revoke: TOKEN, its ID, --subject or --all-before, and only one"),
        (["revoke", ID, "--subject", "ann"], "and only one of them"),
        (["revoke", "--subject", "ann", "--all-before", "now"], "and only one of them"),
        (["revoke", "x"], "TOKEN is no token of a door. Give the line that `iris token new` printed, or the id"),
        (["revoke", ID[1:]], "TOKEN is no token of a door"),
        (["revoke", SECRET.text], "TOKEN is no token of a door"),
        (["revoke", "--subject", ""], "--subject: a subject has 1 to 128"),
        (["revoke", "--all-before", "soon"], "--all-before 'soon' is no time. Write now, or as 2026-05-01T12:00"),
        (["revoke", "--all-before", "9999-01-01"], "--all-before '9999-01-01' lies ahead"),
        (["revoke", "--all-before", "2001-01-01T00:00Z"], "is more than a day ago, and all tokens from before have ended"),
        (["revoke", OF_OTHER], "TOKEN is not signed with a secret of this network"),
        (["revoke", ENDED], "TOKEN has ended, at "),
        (["revoke", ID, "--secret-file", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert SECRET.text not in captured.err


class Answers:
    """The answers of the doors to a revocation, in place of a network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outcomes: RevocationOutcome, silent: tuple[str, ...] = ()) -> None:
        self.asked: list[Revocation] = []
        self._outcomes = outcomes
        self._silent = silent
        monkeypatch.setattr(door_cluster, "revoke_tokens", self._revoke)
        monkeypatch.setattr(Settings, "visit", lambda *_: contextlib.nullcontext())

    async def _revoke(self, _node: object, revocations: list[Revocation], _timeout_s: float) -> RevocationReport:
        self.asked += revocations
        doors = [DoorAnnouncement(id=f"{number:016x}", kind="web", address=f"http://d{number}") for number in range(3)]
        receipts = [(f"{number}" * 32, RevocationReceipt(doors[number], (each,))) for number, each in enumerate(self._outcomes)]
        return RevocationReport(tuple(receipts), self._silent, len(self._silent))


def test_a_revocation_names_each_door_with_its_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = made(capsys, "--sub", "ann", "--observe")
    grant = grant_of(token)
    for given, until in ((token, grant.until), (grant.token_id.upper(), time.time() + TOKEN_KEPT_S)):
        answers = Answers(monkeypatch, "added", "known", "ended")
        assert run(["token", "revoke", given]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        assert captured.out.splitlines()[:3] == [
            "web door http://d0 (node 00000000): revoked",
            "web door http://d1 (node 11111111): was revoked before",
            "web door http://d2 (node 22222222): has ended there",
        ]
        assert captured.out.splitlines()[3].startswith("3 doors confirmed; the revocation ends at ")
        (asked,) = answers.asked
        assert isinstance(asked, TokenRevocation)
        assert asked.id == grant.token_id
        assert asked.until == pytest.approx(until, abs=30)


def test_a_refusal_and_a_silent_door_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Answers(monkeypatch, "added", "full", "ahead", silent=("ab" * 16,))
    assert run(["token", "revoke", "--subject", "ann"]) == 1
    captured = capsys.readouterr()
    assert "http://d1 (node 11111111): REFUSED: the door remembers as many revocations as it can" in captured.out
    assert "http://d2 (node 22222222): REFUSED: the time lies ahead of the door's clock" in captured.out
    assert "1 door confirmed" in captured.out
    assert "1 door did not confirm (nodes abababab)" in captured.err
    Answers(monkeypatch, "added", silent=("ab" * 16,))
    assert run(["token", "revoke", "--all-before", "now", "--json"]) == 4
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["confirmed"], summary["refused"], summary["silent"], summary["silent_nodes"]) == (1, 0, 1, ["ab" * 16])


def test_a_time_without_a_zone_is_a_local_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, "added")
    hour_ago = datetime.now().astimezone().replace(microsecond=0) - timedelta(hours=1)
    for text in (hour_ago.replace(tzinfo=None).isoformat(), hour_ago.isoformat(), hour_ago.astimezone(UTC).isoformat()):
        assert run(["token", "revoke", "--all-before", text]) == 0
    assert answers.asked == [TotalRevocation(hour_ago.timestamp())] * 3
    capsys.readouterr()


@pytest.mark.parametrize("arguments", [["new", "--observe"], ["show", "x"], ["revoke", "x"]])
def test_a_missing_package_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert run(["token", *arguments]) == 2
    assert "tokens need PyJWT. Run: pip install" in capsys.readouterr().err


def test_a_user_without_a_name_gives_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise OSError

    monkeypatch.setattr(getpass, "getuser", refuse)
    assert run(["token", "new", "--observe"]) == 2
    assert "Give --sub." in capsys.readouterr().err
    assert grant_of(made(capsys, "--observe", "--sub", "ann")).subject == "ann"


def test_a_token_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        token = made(
            capsys,
            *("--sub", "ann", "--role", "viewer", "--request", "quotes", "--request", "db-*"),
            *("--publish", "notes.{sub}", "--observe", "--for", "12h"),
        )
        grant = grant_of(token, viewer=Rights())
        rows = shown(capsys, token).splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    until = time.strftime("%Y-%m-%d %H:%M:%S-05:00", time.gmtime(grant.until - 5 * 3600))
    assert rows == [
        "subject        ann",
        "network        lab",
        "role           viewer",
        "request        quotes",
        "request        db-*",
        "publish        notes.{sub}",
        "observe        yes",
        f"until          {until}, 12.0 h left",
        f"id             {grant.token_id}",
        f"signed         yes, with the sealing generation {KEYRING.primary.key_id.hex()} of this network's secret",
    ]


def test_a_token_is_shown_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    token = made(capsys, "--sub", "ann", "--request", "quotes")
    grant = grant_of(token)
    line = json.loads(shown(capsys, token, "--json"))
    assert 3500 < line.pop("left_s") <= 3601
    assert line == {
        "kind": "content",
        "id": grant.token_id,
        "subject": "ann",
        "network": "lab",
        "rights": {"request": ["quotes"]},
        "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(grant.until)),
        "key": KEYRING.primary.key_id.hex(),
        "signed": True,
    }


def test_a_token_comes_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    token = made(capsys, "--observe")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{token}\n".encode())))
    assert grant_of(token).token_id in shown(capsys, "-")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * (TOKEN_BYTES_MAX + 1))))
    assert run(["token", "show", "-"]) == 2
    assert "standard input has more than" in capsys.readouterr().err


def old_token(role: str = "viewer") -> str:
    """Make a token that ended an hour ago."""
    return make_token(KEYRING.primary, subject="ann", role=role, lifetime_s=60.0, now=time.time() - 3720, token_id=ID)


def test_an_ended_token_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ended 1.0 h ago" in shown(capsys, old_token())
    assert json.loads(shown(capsys, old_token(), "--json"))["left_s"] < 0


def test_signatures_of_others_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    token = old_token()
    key_id = KEYRING.primary.key_id.hex()
    assert f"signed         no: {key_id} is not a generation" in shown(capsys, token, "--network", "other")
    assert json.loads(shown(capsys, token, "--network", "other", "--json"))["signed"] is False
    header, claims, _signature = token.split(".")
    forged = f"{header}.{claims}.{'A' * 43}"
    assert f"signed         no: the signature is not of the generation {key_id}" in shown(capsys, forged)
    path = tmp_path / "rotated"
    path.write_text(f"{NEXT.text}\n{SECRET.text}\n")
    path.chmod(0o600)
    assert f"signed         yes, with the accepted generation {key_id}" in shown(capsys, token, "--secret-file", str(path))


def test_to_show_a_token_makes_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("IRIS_SECRET_FILE")
    assert "is not a generation of this network's secret" in shown(capsys, old_token())
    assert not (tmp_path / "config").exists()


def test_names_in_a_token_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, old_token(role="a\x1b[2J\nsigned         yes"))
    assert "role           a\\x1b[2J" in out
    assert "\x1b" not in out
    assert out.count("\nsigned") == 1
