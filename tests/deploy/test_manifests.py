"""Compose and Kubernetes files: valid YAML whose paths, ports and commands exist in Regard."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import regard
from regard.cli import app
from regard.commands.serve import PORT
from regard.serve.http_app import HttpApp

ROOT = Path(__file__).parent.parent.parent
MANIFESTS = [
    ROOT / "deploy/kubernetes.yaml",
    ROOT / "examples/bulk/kubernetes_job.yaml",
    ROOT / "examples/bulk/kubernetes_join.yaml",
]


def documents(path: Path) -> list[dict]:
    return list(yaml.safe_load_all(path.read_text()))


def pods() -> list[dict]:
    kinds = [one for path in MANIFESTS for one in documents(path) if one["kind"] != "Service"]
    return [one["spec"]["template"]["spec"] for one in kinds]


def source_of(function) -> str:
    import inspect

    return inspect.getsource(function)


def test_probes_are_endpoints_without_a_token():
    deployment, service = documents(MANIFESTS[0])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    endpoints = source_of(HttpApp._endpoints)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        target = container[probe]["httpGet"]
        assert re.search(rf'"{target["path"]}": .*public=True', endpoints)
        assert target["port"] == container["ports"][0]["name"]
    assert container["ports"][0]["containerPort"] == PORT
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    app.parse_args(["serve", *container["args"]], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("pod", pods())
def test_pods_are_bounded_and_unprivileged(pod: dict):
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    limits = container["resources"]
    assert set(limits["requests"]) == set(limits["limits"]) == {"cpu", "memory"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_compose_joins_the_service_and_prometheus():
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    regard, prometheus = compose["services"]["regard"], compose["services"]["prometheus"]
    assert (ROOT / "deploy" / regard["build"]["context"]).resolve() == ROOT
    assert (ROOT / regard["build"]["dockerfile"]).exists()
    assert all(port.startswith("127.0.0.1:") for port in regard["ports"] + prometheus["ports"])
    (job,) = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"regard:{PORT}"]}]
    (secret,) = compose["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert regard["environment"]["REGARD_TOKEN_FILE"] == f"/run/secrets/{secret}"
    assert f'"{job["metrics_path"]}"' in source_of(HttpApp._endpoints)


def test_dockerfile_is_ready_on_the_right_port():
    text = (ROOT / "deploy/Dockerfile").read_text()
    assert f"EXPOSE {PORT}\n" in text
    assert f"http://127.0.0.1:{PORT}/v2/health/ready" in text
    assert re.findall("^USER (.*)", text, re.M) == ["regard"]
    stages = text.split("\nFROM ")
    assert "g++" in stages[1]
    assert "g++" not in stages[2]


@pytest.mark.parametrize("name", ["deploy/check.sh", "deploy/entrypoint.sh"])
def test_scripts_parse_and_are_executable(name: str):
    path = ROOT / name
    assert path.stat().st_mode & 0o111
    run = subprocess.run(["sh", "-n", path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_entrypoint_needs_a_token(tmp_path: Path):
    env = {"PATH": "/usr/bin:/bin", "REGARD_RUN": str(tmp_path)}
    run = subprocess.run([ROOT / "deploy/entrypoint.sh"], env=env, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == (
        "regard-serve: set REGARD_TOKEN, or REGARD_TOKEN_FILE to the path of a secret\n"
    )


def test_entrypoint_hands_over_the_token(tmp_path: Path):
    fake = tmp_path / "bin/regard"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$@" "${REGARD_TOKEN:-unset}"\n')
    fake.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin", "REGARD_RUN": str(tmp_path)}
    run = subprocess.run(
        [ROOT / "deploy/entrypoint.sh", "spelling", "--int8"],
        env={**env, "REGARD_TOKEN_FILE": str(secret)},
        capture_output=True,
        text=True,
        check=True,
    )
    token = tmp_path / "token"
    expected = f"serve --host 0.0.0.0 --port {PORT} --token-file {token} spelling --int8 unset\n"
    assert run.stdout == expected
    assert token.read_text() == "0123456789abcdef\n"
    assert token.stat().st_mode & 0o777 == 0o600


def test_examples_name_this_version():
    for pod in pods():
        (container,) = pod["containers"]
        assert container["image"].endswith(f"/regard:{regard.__version__}")
