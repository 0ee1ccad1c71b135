"""The service files of examples/deploy: right by the tools of those who read them, and by what Iris takes and promises."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.settings.table import VARIABLES
from tests.integration.conftest import PATIENCE_S
from tests.integration.test_cli import read_line
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
#: systemd's measure of what a service could do if it were taken over, from 0 to 10.
EXPOSURE_MAX = 2.0
#: The versions of Kubernetes whose schemas are looked at: an old one that is still met, and the newest that is known.
KUBERNETES = ("1.29", kubernetes_validate.latest_version())

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def run(*command: str, directory: Path | None = None, **environment: str) -> str:
    """Run a command to its end and return what it prints; it has to succeed."""
    done = subprocess.run(
        command, cwd=directory, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def installed(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def settings(text: str) -> dict[str, list[str]]:
    """Return the settings of a unit, each with its values."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def check_command(words: list[str]) -> None:
    """Fail unless a command of iris has the options that it is given."""
    text = run(sys.executable, "-m", "iris_py.cli", words[0], "--help", COLUMNS="200", NO_COLOR="1")
    for word in words[1:]:
        assert not word.startswith("-") or re.search(rf"{word}\b", text), f"iris {words[0]} has no {word}"


def check_variables(names: list[str]) -> None:
    assert [name for name in names if name.startswith("IRIS_") and name not in VARIABLES.values()] == []


# -- systemd


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_right_and_can_do_little(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@.", "@databases.")
    copy.write_text(unit.read_text().replace("/opt/iris/bin/iris", "/bin/true"))  # it need not be installed here
    assert run("systemd-analyze", "verify", str(copy)) == ""
    exposure = run("systemd-analyze", "security", "--offline=yes", f"--threshold={int(EXPOSURE_MAX * 10)}", str(copy))
    print(exposure.splitlines()[-1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_says_what_iris_takes_and_promises(unit: Path) -> None:
    text = unit.read_text()
    found = settings(text)
    assert found["Type"] == ["notify"]
    assert int(found["TimeoutStopSec"][0]) > DRAIN_TIMEOUT_S
    assert "IRIS_SECRET_FILE=/etc/iris/secret" in found["Environment"]
    assert "LoadCredential" not in found, "a copy of the start: a reload would read the old secret again"
    assert (found["ExecReload"], found["SupplementaryGroups"]) == (["/bin/kill -HUP $MAINPID"], ["iris"])
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    assert f"[`{unit.name}`]" in page
    for line in ("groupadd --system iris", "install -d -m 750 -g iris /etc/iris", "chmod 640 /etc/iris/secret"):
        assert f"$ {line}\n" in page
    check_variables(re.findall(r"\b[A-Z_]+(?==)", " ".join(found["Environment"]) + text[: text.index("[Unit]")]))
    program, *words = shlex.split(found["ExecStart"][0].replace("%i", "databases"))
    assert program == "/opt/iris/bin/iris"
    check_command(words)


# -- Docker


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, with what follows each."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line]


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    run(installed("hadolint"), str(DOCKERFILE))


@pytest.mark.long
def test_the_image_runs_as_its_file_says(tmp_path: Path) -> None:
    """Its COPY and RUN lines are performed in empty folders, and the program is started with its ENV as its CMD says."""
    port = str(free_port())

    def here(text: str) -> str:
        return (
            text.replace("/opt/iris", str(tmp_path / "opt")).replace("/wheels", str(tmp_path / "wheels")).replace("9464", port)
        )

    context = tmp_path / "context"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(context / "dist"), directory=ROOT)
    found = instructions(here(DOCKERFILE.read_text()))
    environment: dict[str, str] = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PATH": os.environ["PATH"]}
    for name, text in found:
        if name == "COPY" and not text.startswith("--from"):
            sources, target = text.split()
            Path(target).mkdir(parents=True)
            for source in context.glob(sources):
                shutil.copy(source, target)
        elif name == "RUN":
            run("sh", "-ec", text, directory=tmp_path, **environment)
        elif name == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(text))
    environment["PATH"] = environment["PATH"].replace("$PATH", os.environ["PATH"])
    check_variables(list(environment))
    opt = tmp_path / "opt"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(opt), "platbase": str(opt)}))
    # What Iris needs comes from here, behind what was installed; our own checkout is in a .pth file, which is not read.
    own = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(own))
    (tmp_path / "secret").touch(mode=0o400)
    with open(os.open(tmp_path / "secret", os.O_WRONLY), "w") as file:
        file.write(run(sys.executable, "-m", "iris_py.cli", "keys", "new"))
    environment |= {"IRIS_SECRET_FILE": str(tmp_path / "secret"), "IRIS_LISTEN": "127.0.0.1:0", "XDG_STATE_HOME": str(tmp_path)}
    words = {name: json.loads(text[text.index("[") :]) for name, text in found if name in ("ENTRYPOINT", "CMD", "HEALTHCHECK")}
    (health,) = (json.loads(text[text.index("[") :]) for name, text in found if name == "HEALTHCHECK")
    command = [str(opt / "bin" / words["ENTRYPOINT"][0]), *words["ENTRYPOINT"][1:], *words["CMD"]]
    asking = [str(opt / "bin" / health[0]), *health[1:]]
    assert subprocess.run(asking, capture_output=True, check=False).returncode != 0, "nothing runs yet"
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert "Ctrl-C ends it" in read_line(process.stderr)
        run(*asking)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_image_serves_no_root_and_holds_no_secret() -> None:
    found = instructions(DOCKERFILE.read_text())
    (user,) = (text for name, text in found if name == "USER")
    assert int(user.split(":")[0]) > 0, "Kubernetes checks runAsNonRoot by the number"
    assert not re.search(r"iris1\.|ARG ", DOCKERFILE.read_text())


def test_compose_takes_its_file() -> None:
    schema = resources.files("check_jsonschema.builtin_schemas.vendor").joinpath("compose-spec.json")
    document = yaml.safe_load(COMPOSE.read_text())
    jsonschema.validate(document, json.loads(schema.read_text()))
    for service in document["services"].values():
        assert int(service["stop_grace_period"].rstrip("s")) > DRAIN_TIMEOUT_S
        assert (ROOT / "examples/deploy/docker" / service["build"]["context"] / service["build"]["dockerfile"]).samefile(
            DOCKERFILE
        )
        assert set(service["secrets"]) <= set(document["secrets"])
        assert {each["source"] for each in service.get("configs", [])} <= set(document["configs"])
        check_variables(list(service.get("environment", {})))
        if "command" in service:
            check_command(service["command"])


# -- Kubernetes


def documents(name: str) -> list[dict[str, Any]]:
    return [dict(each) for each in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", ["iris.yaml", "gateway.yaml"])
def test_kubernetes_takes_its_file(name: str, version: str) -> None:
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


def test_the_parts_of_the_gateways_fit_together() -> None:
    service, pods, budget = documents("gateway.yaml")
    network = documents("iris.yaml")[0]
    spec = pods["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    labels = pods["spec"]["template"]["metadata"]["labels"]
    selectors = [part["spec"]["selector"]["matchLabels"] for part in (pods, budget)]
    assert [service["spec"]["selector"], *selectors] == [labels] * 3
    ports = {port["name"]: (port["containerPort"], port["protocol"]) for port in container["ports"]}
    assert [(port["port"], port["protocol"]) for port in service["spec"]["ports"]] == [ports["federation"]]
    assert spec["terminationGracePeriodSeconds"] > DRAIN_TIMEOUT_S
    variables = {each["name"]: each["value"] for each in container["env"]}
    check_variables(list(variables))
    check_command(container["args"])
    assert variables["IRIS_SEEDS"] == f"{network['metadata']['name']}:4711"
    (settings_volume,) = (volume["projected"] for volume in spec["volumes"] if "projected" in volume)
    assert settings_volume["defaultMode"] == 0o400, "the identity is no file that others read"
    assert [next(iter(source)) for source in settings_volume["sources"]] == ["secret", "secret", "configMap"]
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_the_parts_of_the_set_fit_together() -> None:
    service, pods, budget = documents("iris.yaml")
    (monitor,) = documents("monitor.yaml")
    spec = pods["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["publishNotReadyAddresses"] is True, "pods are ready when they have found each other by that name"
    assert service["spec"]["clusterIP"] == "None"
    assert pods["spec"]["serviceName"] == service["metadata"]["name"]
    selectors = [part["spec"]["selector"]["matchLabels"] for part in (pods, budget)]
    assert [service["spec"]["selector"], *selectors] == [labels] * 3
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    ports = {port["name"]: (port["containerPort"], port["protocol"]) for port in container["ports"]}
    assert {port["name"]: (port["port"], port["protocol"]) for port in service["spec"]["ports"]} == ports
    assert {end["port"] for end in monitor["spec"]["endpoints"]} <= set(ports)
    assert spec["terminationGracePeriodSeconds"] > DRAIN_TIMEOUT_S
    variables = {each["name"]: each["value"] for each in container["env"]}
    check_variables(list(variables))
    check_command(container["args"])
    assert variables["IRIS_SEEDS"] == f"{service['metadata']['name']}:{ports['iris'][0]}"
    assert {ports["iris"], ports["iris-udp"]} == {(4711, "TCP"), (4711, "UDP")}, "datagrams come to the port of the number"


def test_the_secret_is_no_file_that_others_read() -> None:
    _, pods, _ = documents("iris.yaml")
    spec = pods["spec"]["template"]["spec"]
    (volume,) = (volume["secret"] for volume in spec["volumes"] if "secret" in volume)
    assert volume["defaultMode"] == 0o400
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    (user,) = (text for name, text in instructions(DOCKERFILE.read_text()) if name == "USER")
    assert user == f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
