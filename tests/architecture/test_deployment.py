"""What docker-compose.yml and the Dockerfiles promise, read from them: no engine is on this machine."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer import Typer
from typer.main import get_command

from ckptguard.client.address import ALLOW_HTTP_VARIABLE, TOKEN_FILE_VARIABLE, URL_VARIABLE
from ckptguard_api.commands.db import app as db_app
from ckptguard_api.commands.serve import app as serve_app
from ckptguard_api.settings import Settings
from ckptguard_workers.command import app as worker_app

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILES: Final = ("api/Dockerfile", "workers/Dockerfile")
LONG_RUNNING: Final = ("api", "worker", "postgres", "s3")
OURS: Final = ("api", "migrate", "worker", "check")
_SECRET_NAME: Final = re.compile(r"PASSWORD|TOKEN|SECRET|KEY|DATABASE_URL")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return docker-compose.yml as plain values, anchors resolved."""
    read = YAML(typ="safe", pure=True).load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    plain: dict[str, Any] = json.loads(json.dumps(read))
    return plain


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, continued lines joined."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    split = (line.strip().partition(" ") for line in lines if line.strip())
    return [(word, rest.strip()) for word, _, rest in split]


def last_stage(name: str) -> list[tuple[str, str]]:
    """Return the instructions of the stage that becomes the image."""
    found = instructions(name)
    start = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def test_the_compose_file_follows_the_specification(compose: dict[str, Any]) -> None:
    """The Compose Specification's own schema, as check-jsonschema ships it."""
    validator = Draft202012Validator(get_builtin_schema("vendor.compose-spec"))
    assert [error.message for error in validator.iter_errors(compose)] == []
    broken = {"services": {"api": {"imagine": "x"}}}
    assert list(validator.iter_errors(broken)), "the schema refuses what it does not know"


def test_every_image_has_a_version(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "image" in service]
    images += [rest.split()[0] for name in DOCKERFILES for word, rest in instructions(name) if word == "FROM"]
    assert len(images) >= 6
    for image in images:
        assert re.fullmatch(r"[\w./-]+:\d+(\.\d+)+[\w.-]*", image), image


def test_what_opens_checkpoints_can_do_little(compose: dict[str, Any]) -> None:
    for name in ("worker", "check"):
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - a mount of its own
        assert "privileged" not in service


def test_a_worker_reaches_the_api_and_the_store_and_nothing_else(compose: dict[str, Any]) -> None:
    services, networks = compose["services"], compose["networks"]
    worker = set(services["worker"]["networks"])
    assert all(networks[name].get("internal") is True for name in worker), "it has no way out"
    near = {
        name
        for name, service in services.items()
        if name != "worker" and worker & set(service.get("networks", ()))
    }
    assert near == {"api", "s3"}
    assert services["check"]["network_mode"] == "none"


def test_the_database_is_reached_by_the_api_and_its_migration_alone(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert compose["networks"]["state"]["internal"] is True
    assert services["postgres"]["networks"] == ["state"]
    assert "ports" not in services["postgres"]
    near = {name for name, service in services.items() if "state" in service.get("networks", ())}
    assert near == {"api", "migrate", "postgres"}


def test_a_worker_has_no_credential_of_the_database(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert set(worker["secrets"]) == {"worker_token", "s3_reader"}
    assert not [name for name in worker["environment"] if "DATABASE" in name]
    assert "volumes" not in worker


def test_no_secret_is_a_variable(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for variable in service.get("environment", {}):
            is_secret = _SECRET_NAME.search(variable) is not None
            assert not is_secret or variable.endswith("_FILE"), f"{name}: {variable}"
    for name in DOCKERFILES:
        words = [rest for word, rest in instructions(name) if word in {"ARG", "ENV"}]
        assert not [text for text in words if _SECRET_NAME.search(text)]


def test_ports_are_published_on_this_machine_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_both_ends_are_told_that_nothing_encrypts_inside(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert "--tls-terminated-by-proxy" in services["api"]["command"]
    assert services["worker"]["environment"][ALLOW_HTTP_VARIABLE] == "1"
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "nothing is encrypted" in text, "and the file says why"


@pytest.mark.parametrize(
    ("service", "app", "name"), [("api", serve_app, "serve"), ("worker", worker_app, "worker")]
)
def test_the_commands_exist_with_these_options(
    compose: dict[str, Any], service: str, app: Typer, name: str
) -> None:
    command = compose["services"][service]["command"]
    assert command[0] == name
    known = {option for parameter in get_command(app).params for option in parameter.opts}
    asked = {word for word in command if word.startswith("--")}
    assert asked <= known, asked - known


def test_containers_log_json_whether_or_not_they_have_a_terminal(compose: dict[str, Any]) -> None:
    commands = [compose["services"][name]["command"] for name in ("api", "worker")]
    commands += [json.loads(rest) for name in DOCKERFILES for word, rest in last_stage(name) if word == "CMD"]
    assert len(commands) == 4
    for command in commands:
        assert command[command.index("--log") + 1] == "json"


def test_the_migration_is_a_command(compose: dict[str, Any]) -> None:
    group, subcommand = compose["services"]["migrate"]["command"]
    assert group == "db"
    assert subcommand in {command.name for command in db_app.registered_commands}


def test_every_variable_is_one_that_is_read(compose: dict[str, Any]) -> None:
    settings = {f"CKPTGUARD_{name.upper()}" for name in Settings.model_fields}
    known = settings | {URL_VARIABLE, TOKEN_FILE_VARIABLE, ALLOW_HTTP_VARIABLE}
    for name in OURS:
        assert set(compose["services"][name].get("environment", {})) <= known


def test_the_order_is_database_schema_api_worker(compose: dict[str, Any]) -> None:
    needs = {name: service.get("depends_on", {}) for name, service in compose["services"].items()}
    assert needs["migrate"]["postgres"]["condition"] == "service_healthy"
    assert needs["api"]["migrate"]["condition"] == "service_completed_successfully"
    assert needs["worker"]["api"]["condition"] == "service_healthy"


def test_what_runs_for_long_is_watched_and_comes_back(compose: dict[str, Any]) -> None:
    for name in LONG_RUNNING:
        service = compose["services"][name]
        assert service["restart"] == "unless-stopped"
        has_own = "healthcheck" in service
        dockerfile = service.get("build", {}).get("dockerfile")
        assert has_own or any(word == "HEALTHCHECK" for word, _ in last_stage(dockerfile)), name


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_runs_as_nobody_special(name: str) -> None:
    users = [rest for word, rest in last_stage(name) if word == "USER"]
    assert users
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[-1])


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_holds_what_was_built_and_no_builder(name: str) -> None:
    stages = [rest for word, rest in instructions(name) if word == "FROM"]
    assert len(stages) == 2
    assert not [rest for word, rest in last_stage(name) if word == "RUN" and "pip" in rest]
    installs = [rest for word, rest in instructions(name) if word == "RUN" and "pip install" in rest]
    assert installs
    assert all("-c constraints.txt" in rest for rest in installs)
    assert not [word for word, _ in instructions(name) if word == "ADD"]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_is_built_from_what_is_there_and_let_through(name: str) -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignore, "everything is left out but what is named"
    named = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copies = [
        rest.split()[:-1]
        for word, rest in instructions(name)
        if word == "COPY" and not rest.startswith("--from")
    ]
    copied = {source for sources in copies for source in sources}
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    assert copied <= named


def test_the_secrets_are_made_once_and_kept_close(compose: dict[str, Any], tmp_path: Path) -> None:
    script = Path(shutil.copy(ROOT / "deploy" / "compose" / "make_secrets.sh", tmp_path))
    folder = tmp_path / "secrets"
    contents = []
    for _ in range(2):
        subprocess.run(["/bin/sh", str(script)], check=True, capture_output=True)
        contents.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert contents[0] == contents[1]
    assert folder.stat().st_mode & 0o077 == 0
    wanted = {Path(secret["file"]) for secret in compose["secrets"].values()}
    assert {path.name for path in wanted} == set(contents[0])
    assert {str(path.parent) for path in wanted} == {"deploy/compose/secrets"}
    assert contents[0]["postgres_password"].decode() in contents[0]["database_url"].decode()
    assert "deploy/compose/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    (reader,) = json.loads(contents[0]["s3_reader"]).values()
    identities = json.loads(contents[0]["s3_identities"])["identities"]
    (worker,) = [identity for identity in identities if identity["name"] == "worker"]
    assert worker["credentials"][0]["secretKey"] == reader["secret"]
    assert set(worker["actions"]) == {"Read", "List"}, "a worker writes nothing into a store"
