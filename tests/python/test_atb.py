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


def record(directory, program, *options, layers=LAYERS, threads=THREADS):
    directory.mkdir()
    variables = dict(os.environ, LD_LIBRARY_PATH=STANDIN / "lib64", ASCEND_HOME_PATH=STANDIN, STANDIN_ATB_PATHS="named")
    variables.pop("LD_PRELOAD", None)
    command = [PROGRAM, f"--output={directory / 'out'}", *options, "--", program, str(layers), str(threads)]
    completed = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return Run(directory, completed)


def analyze(run, *options, source=None):
    command = [PROGRAM, "analyze", source or run.output, *options]
    analyzed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert analyzed.returncode == 0, analyzed.stderr
    return analyzed.stdout


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
    analyze(run)


DOCUMENTED = "--watch=token0/layer0/module0/op0,token0/layer0/module0/op1,full-content"


def test_outputs_of_an_operation_are_watched_without_python(tmp_path, program, monkeypatch):
    """The line of the users' documents: what op0 has written is dumped until op1 has ended."""
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    run = record(tmp_path / "run", program, DOCUMENTED, threads=1)
    dumps = [path.name for path in run.files("*.bin")]
    # After op0, which makes it; before and after op1, which reads it.
    assert len(dumps) == 3 and all("token0" in name for name in dumps), dumps
    assert len({path.read_bytes() for path in run.files("*.bin")}) == 1
    analyzed = analyze(run)
    assert "layer0/module0/op0 output 0" in analyzed and "nothing was watched" not in run.stderr, analyzed


def test_checksums_are_taken_around_kernels_without_python(tmp_path, program, monkeypatch):
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    line = DOCUMENTED.removesuffix(",full-content")
    run = record(tmp_path / "run", program, line, "--level=kernel", threads=1)
    (sums,) = run.files("watch_dump_data_check_sum*.csv")
    assert sums.read_text().count("token0/layer0/module0/op0") >= 3, sums.read_text()


def test_what_is_not_watched_is_said(tmp_path, program, monkeypatch):
    monkeypatch.delenv("ASCEND_LAUNCH_BLOCKING", raising=False)
    run = record(tmp_path / "run", program, DOCUMENTED, threads=1)
    assert "set ASCEND_LAUNCH_BLOCKING=1" in run.stderr, run.stderr
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    run = record(tmp_path / "hunt", program, "--watch=auto", threads=1)
    assert "blocks are hunted only in jobs with PyTorch" in run.stderr, run.stderr
    run = record(tmp_path / "misspelt", program, "--watch=token0/layer9/op0,token0/layer0/op1", threads=1)
    assert "operator 'token0/layer9/op0' had no output on an NPU that could be watched" in " ".join(run.stderr.split())
    watched = record(tmp_path / "watched", program, DOCUMENTED, threads=1)
    command = [PROGRAM, "watch-report", run.output, watched.output]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "layer0/module0/op0 output 0" in report, "the one beside the other"
    assert "nothing was watched, although --watch asked for it:\n  operator 'token0/layer9/op0'" in report


def test_layers_are_told_apart_at_the_peak(tmp_path, program):
    run = record(tmp_path / "run", program, "--events=alloc,free,launch", threads=1)
    for source in (run.output, next(run.output.rglob("memscope_dump_*.csv"))):
        said = analyze(run, "--peak", "--by=operator", source=source)
        assert "layer0" in said and "module0" in said and "op0 (LinearOperation)" in said, said
