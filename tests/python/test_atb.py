"""A C++ program with operations of ATB, from the recording to rows, findings and comparison, in both ABIs."""

import os
import subprocess

import pytest
from running import PROGRAM, ROOT, STANDIN, Run

SOURCE = ROOT / "crates/job/recorder/tests/programs/atb.cpp"
LAYERS, THREADS, OPERATORS, KERNELS = 3, 2, 5, 4


@pytest.fixture(scope="module", params=[0, 1])
def program(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("atb") / "atb"
    atb = STANDIN / f"atb/cxx_abi_{request.param}/lib"
    libraries = [f"-L{STANDIN / 'lib64'}", "-lascendcl", "-lruntime", str(atb / "libatb.so"), f"-Wl,-rpath,{atb}"]
    arguments = ["-std=c++17", "-pthread", f"-D_GLIBCXX_USE_CXX11_ABI={request.param}", f"-I{STANDIN / 'include'}"]
    subprocess.run(["g++", *arguments, SOURCE, "-o", made, *libraries], check=True)
    return made


def record(directory, program, *options, layers=LAYERS):
    directory.mkdir()
    variables = dict(os.environ, LD_LIBRARY_PATH=STANDIN / "lib64", ASCEND_HOME_PATH=STANDIN, STANDIN_ATB_PATHS="named")
    variables.pop("LD_PRELOAD", None)
    command = [PROGRAM, f"--output={directory / 'out'}", *options, "--", program, str(layers), str(THREADS)]
    completed = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return Run(directory, completed)


def test_rows_are_those_of_the_manual(tmp_path, program):
    run = record(tmp_path / "run", program, "--events=alloc,free,launch,access", "--level=op,kernel")
    starts, ends = run.rows("OP_LAUNCH", "ATB_START"), run.rows("OP_LAUNCH", "ATB_END")
    assert len(starts) == len(ends) == LAYERS * THREADS * OPERATORS
    assert {row["Name"] for row in starts} == {
        "layer0",
        "module0",
        "LinearOperation",
        "ElewiseOperation",
        "RmsNormOperation",
    }
    paths = [row.attributes["path"].split("/", 1)[1] for row in starts]
    assert paths.count("token0/layer0/module0/op0") == paths.count("token2/layer0/op1") == THREADS
    assert sorted(paths) == sorted(row.attributes["path"].split("/", 1)[1] for row in ends)
    linear = next(row for row in starts if row["Name"] == "LinearOperation").attributes
    assert list(linear) == ["path", "workspace_ptr", "workspace_size"] and int(linear["workspace_size"]) > 0
    kernels = run.rows("KERNEL_LAUNCH", "KERNEL_START")
    assert len(kernels) == len(run.rows("KERNEL_LAUNCH", "KERNEL_END")) == LAYERS * THREADS * KERNELS
    assert kernels[0].attributes["path"].endswith("/token0/layer0/module0/op0/0_MatMulKernel")
    accesses = run.rows("ACCESS")
    first = next(row for row in accesses if row["Name"] == "LinearOperation").attributes
    assert {key: first[key] for key in ("type", "dtype", "format", "shape")} == {
        "type": "ATB",
        "dtype": "ACL_FLOAT",
        "format": "ACL_FORMAT_ND",
        "shape": "[4,8,]",
    }
    assert {row["Event Type"] for row in accesses} == {"UNKNOWN", "WRITE"}
    assert len(run.rows("MALLOC", "ATB")) == len(run.rows("FREE", "ATB")) > 0


def test_recordings_are_compared_by_operator(tmp_path, program):
    first, second = (record(tmp_path / name, program, layers=layers) for name, layers in (("a", 3), ("b", 4)))
    command = [PROGRAM, "compare", first.output, second.output]
    compared = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stderr
    assert "LinearOperation" in compared.stdout
    same = subprocess.run([*command[:3], first.output], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "LinearOperation" not in same.stdout


def test_findings_are_made_of_what_atb_says(tmp_path, program):
    run = record(
        tmp_path / "run", program, "--events=alloc,free,launch,access", "--analysis=leaks,decompose,inefficient"
    )
    assert {row.attributes["owner"] for row in run.rows("MALLOC", "ATB")} == {"ATB"}
    analyzed = subprocess.run(
        [PROGRAM, "analyze", run.output], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert analyzed.returncode == 0, analyzed.stderr
