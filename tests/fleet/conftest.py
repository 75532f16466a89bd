"""Fixtures: recordings of a job with many ranks, its dataset, and a Spark cluster of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target" / "release" / "msmemscope"
TORCH_PYTHON = ROOT / "target" / "torch-venv" / "bin" / "python"
GENERATOR = ROOT / "target" / "release" / "examples" / "made_fleet"
sys.path.insert(0, str(ROOT / "python"))

RANKS = 256
STEPS = 12
LEAKING = 77
PATIENCE_SECONDS = 120


def tool(*arguments) -> str:
    """Runs the program and gives what it prints."""
    completed = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="session")
def made_job(tmp_path_factory):
    """A generated job of many ranks, of which one leaks, and its dataset."""
    home = tmp_path_factory.mktemp("made")
    subprocess.run([GENERATOR, home / "job", str(RANKS), str(STEPS), str(LEAKING)], check=True)
    tool("export", home / "job", "--to=parquet", "-o", home / "dataset")
    return home


@pytest.fixture(scope="session")
def small_job(tmp_path_factory):
    """A generated job of a few ranks, and its dataset."""
    home = tmp_path_factory.mktemp("small")
    subprocess.run([GENERATOR, home / "job", "6", str(STEPS), "5"], check=True)
    tool("export", home / "job", "--to=parquet", "-o", home / "dataset")
    return home


def leaky_training(home):
    """The example of the README, built, as the command of each of four ranks."""
    source = ROOT / "examples" / "leaky_training.c"
    program = home / "leaky_training"
    libraries = ROOT / "target" / "standin" / "lib64"
    include = ROOT / "standin" / "include"
    command = ["gcc", "-g", "-O1", f"-I{include}", source, "-o", program, f"-L{libraries}"]
    subprocess.run([*command, "-lascendcl", "-lms_tools_ext", f"-Wl,-rpath,{libraries}"], check=True)
    return ["--call-stack=c:8"], [[program]] * 4


def examples_of_torch(_home):
    """Examples with the real torch_npu, of which two leak, as the commands of four ranks."""
    scripts = [["train.py"], ["gpt.py", "--leak", "--steps", "8"], ["mlp.py", "--steps", "12"], ["inference.py"]]
    commands = [[TORCH_PYTHON, ROOT / "examples" / script, *arguments] for script, *arguments in scripts]
    return ["--events=alloc,free,launch,access"], commands


@pytest.fixture(scope="session", params=[leaky_training, examples_of_torch], ids=["c", "torch"])
def recorded_job(request, tmp_path_factory):
    """Examples on the stand-in device, as four ranks that were started one by one, and their dataset."""
    home = tmp_path_factory.mktemp("recorded")
    options, commands = request.param(home)
    for rank, command in enumerate(commands):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank)}
        recording = [PROGRAM, *options, "--analysis=leaks,decompose", f"--output={home / 'results'}"]
        run = [ROOT / "scripts" / "standin-run", *recording, "--", *command]
        subprocess.run(run, env=environment, check=True, capture_output=True)
    tool("export", home / "results", "--to=parquet", "-o", home / "dataset")
    return home


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int) -> None:
    """Waits until somebody listens."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nobody listens on port {port}")


@pytest.fixture(scope="session")
def spark_master(tmp_path_factory):
    """A standalone master and two workers, all on loopback."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    directory = tmp_path_factory.mktemp("spark")
    port = free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(directory),
    }
    os.environ.update({name: environment[name] for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")})
    run = [home / "bin" / "spark-class"]
    master = f"spark://127.0.0.1:{port}"
    started = []

    def start(name, *arguments):
        with (directory / f"{name}.log").open("w") as log:
            started.append(subprocess.Popen([*run, *arguments], env=environment, stdout=log, stderr=log))

    try:
        package = "org.apache.spark.deploy"
        ports = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        start("master", f"{package}.master.Master", *ports)
        wait_for_port(port)
        for worker in range(2):
            webui = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
            resources = ["--cores", "1", "--memory", "1g"]
            start(f"worker{worker}", f"{package}.worker.Worker", *webui, *resources, master)
        yield master
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
