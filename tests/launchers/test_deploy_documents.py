"""The documents of `deploy/` that no shell runs: their fields, and the programs they hold.

Kubeflow's were held against the CRDs of kubeflow/trainer@8c0f505; what is used of those, and of SkyPilot's
sky/utils/schemas.py@00052df, is written down here.
"""

import py_compile
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from ckptguard.cli.exit_codes import ExitCode
from tests.launchers.examples_of_launchers import pod_of, read_yaml
from tests.launchers.launch_site import DEPLOY, LaunchSite
from tests.scripted_service import problem, scripted_service

TEXT: Final = {"type": "string"}


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON Schema
    """Return the schema of an object that has no other fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def listed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


CODE: Final = {"type": "integer", "minimum": 0, "maximum": 255}
SKYPILOT: Final = closed(
    ("resources", "run"),
    name=TEXT,
    num_nodes={"type": "integer"},
    setup=TEXT,
    run=TEXT,
    envs={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    secrets={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    resources=closed(
        ("job_recovery",),
        accelerators=TEXT,
        use_spot={"type": "boolean"},
        job_recovery=closed(
            ("recover_on_exit_codes",),
            strategy={"enum": ["FAILOVER", "EAGER_NEXT_REGION"]},
            max_restarts_on_errors={"type": "integer", "minimum": 0},
            recover_on_exit_codes=listed(CODE) | {"uniqueItems": True},
        ),
    ),
)
_ENV: Final = listed(
    closed(("name",), name=TEXT, value=TEXT, valueFrom=closed(fieldRef=closed(fieldPath=TEXT)))
)
_PATCHED_POD: Final = closed(initContainers=listed(closed(("name",), name=TEXT, env=_ENV)))
_PATCHED_JOB: Final = closed(
    ("name",), name=TEXT, template=closed(spec=closed(template=closed(spec=_PATCHED_POD)))
)
TRAINJOB_SPEC: Final = closed(
    ("runtimeRef",),
    runtimeRef=closed(("name",), apiGroup=TEXT, kind={"enum": ["TrainingRuntime"]}, name=TEXT),
    trainer=closed(
        numNodes={"type": "integer"},
        numProcPerNode={"type": "integer"},
        command=listed(TEXT),
        args=listed(TEXT),
    ),
    runtimePatches=listed(
        closed(
            ("manager",),
            manager=TEXT,
            trainingRuntimeSpec=closed(template=closed(spec=closed(replicatedJobs=listed(_PATCHED_JOB)))),
        )
    ),
)


def errors(schema: dict[str, Any], value: Any) -> list[str]:  # noqa: ANN401 - YAML
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def test_skypilot_recovers_what_time_can_change_and_nothing_else() -> None:
    document = read_yaml(DEPLOY / "skypilot/train.yaml")
    assert errors(SKYPILOT, document) == []
    assert document["resources"]["job_recovery"]["recover_on_exit_codes"] == [ExitCode.TRY_AGAIN]
    assert errors(SKYPILOT, document | {"imagine": 1}), "the schema refuses what it does not know"


def test_kubeflows_job_has_the_fields_that_a_trainjob_has() -> None:
    document = read_yaml(DEPLOY / "kubeflow/trainjob.yaml")
    assert (document["apiVersion"], document["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert errors(TRAINJOB_SPEC, document["spec"]) == []


def test_kubeflows_job_and_runtime_fit_each_other() -> None:
    job, runtime = (read_yaml(DEPLOY / f"kubeflow/{name}.yaml") for name in ("trainjob", "training-runtime"))
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    pod = pod_of(runtime)
    (patch,) = job["spec"]["runtimePatches"]
    (patched,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    (container,) = patched["template"]["spec"]["template"]["spec"]["initContainers"]
    assert container["name"] in {first["name"] for first in pod["initContainers"]}
    known = {variable["name"] for first in pod["initContainers"] for variable in first["env"]}
    assert {variable["name"] for variable in container["env"]} <= known


def test_a_pod_mounts_what_it_has_and_only_the_launcher_holds_the_token() -> None:
    pod = pod_of(read_yaml(DEPLOY / "kubeflow/training-runtime.yaml"))
    (first,), (trainer,) = pod["initContainers"], pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = [{mount["name"] for mount in container["volumeMounts"]} for container in (first, trainer)]
    assert mounted[0] == volumes
    assert mounted[1] == volumes - {"ckptguard-token"}
    by_name = {mount["name"]: mount for mount in first["volumeMounts"]}
    assert by_name["checkpoints"]["readOnly"]
    variables = {variable["name"]: variable.get("value") for variable in first["env"]}
    assert variables["CKPTGUARD_TOKEN_FILE"].startswith(by_name["ckptguard-token"]["mountPath"])
    assert variables["TARGET"].startswith(by_name["ckptguard"]["mountPath"])


@pytest.mark.parametrize(
    "program", sorted(DEPLOY.rglob("*.py")), ids=lambda file: str(file.relative_to(DEPLOY))
)
def test_every_program_is_one_that_python_can_read(program: Path, tmp_path: Path) -> None:
    py_compile.compile(str(program), cfile=str(tmp_path / "compiled"), doraise=True)


RAY: Final = '''
"""As much of Ray Train as the example uses: one worker, in this process."""
import os, types

class Config:
    def __init__(self, **options): self.__dict__.update(options)

class TorchTrainer:
    def __init__(self, train, *, train_loop_config, scaling_config, run_config):
        self.train, self.config = train, train_loop_config
    def fit(self):
        with open(os.environ["STARTED"], "a") as started:
            started.write("worker\\n")
        self.train(self.config)

ScalingConfig = RunConfig = FailureConfig = Config
get_context = lambda: types.SimpleNamespace(get_world_rank=lambda: 0)
report = lambda metrics: print("reported", metrics)
'''


@pytest.fixture(scope="module")
def ray(site: LaunchSite) -> Path:
    """Return a folder with a package `ray`; the real one is not installed here."""
    package = site.folder / "fakes" / "ray" / "train"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("", encoding="utf-8")
    (package / "__init__.py").write_text(RAY, encoding="utf-8")
    (package / "torch.py").write_text("from ray.train import TorchTrainer\n", encoding="utf-8")
    return package.parents[1]


@pytest.mark.parametrize(
    ("state", "options", "code"),
    [
        ("good", (), 0),
        ("empty", (), 40),
        ("empty", ("--allow-fresh",), 0),
        ("damaged", ("--allow-fresh",), 30),
        ("tpyo", ("--allow-fresh",), 30),
    ],
)
def test_ray_starts_a_worker_only_from_something_proven(
    state: str, options: tuple[str, ...], code: int, site: LaunchSite, ray: Path
) -> None:
    run = f"ray-{state}-{len(options)}"
    if state in {"good", "damaged"}:
        site.save(run, 1200, name="step-1200", is_valid=state == "good")
    elif state == "empty":
        site.add_empty_run(run)
    launched = site.launch(
        ["python", str(DEPLOY / "ray/train.py"), run, *options], site.environment(run, PYTHONPATH=str(ray))
    )
    assert launched.code == code, launched.output
    assert len(launched.started) == (code == 0)
    assert ("loading" in launched.output) == (state == "good")
    told = [outcome for _, outcome, _ in site.restarts(run)]
    assert told == (["resumed", "progressed"] if state == "good" else [])


def test_ray_starts_nothing_while_the_service_gives_no_answer(site: LaunchSite, ray: Path) -> None:
    with scripted_service() as away:
        later = {"Retry-After": "60"}  # beyond the deadline: no second try
        away.on(
            "GET /v1/runs/r/resume-target", problem(503, "service_unavailable", "no database", headers=later)
        )
        environment = site.environment("r", PYTHONPATH=str(ray), CKPTGUARD_URL=away.url)
        command = ["python", str(DEPLOY / "ray/train.py"), "r", "--allow-fresh", "--wait", "0"]
        launched = site.launch(command, environment)
    assert (launched.code, launched.started) == (20, ()), launched.output
