"""Offline analyses through Python."""

import sqlite3

import msmemscope
import pytest
from msmemscope.analyzer import InefficientAnalyzer, InefficientConfig, LeaksAnalyzer, LeaksConfig
from msmemscope.exceptions import AnalysisError

PROGRAM = """
    import msmemscope
    import small_framework as framework
    msmemscope.config(events="alloc,free", output="out")
    msmemscope.start()
    framework.begin()
    for _ in range(3):
        framework.mark("test")
        leaked = framework.allocate(3 << 20)
        framework.free(framework.allocate(4096))
    msmemscope.stop()
"""


@pytest.fixture
def dump(run):
    (path,) = run(PROGRAM).files("memscope_dump_*.csv")
    return path


def test_leaks_between_marks(dump, capsys):
    (report,) = msmemscope.check_leaks(input_path=str(dump), mstx_info="test", start_index=0)
    (device,) = report["devices"]
    assert device["outcome"] == "complete"
    assert [leak["size_bytes"] for leak in device["leaks"]] == [3 << 20]
    assert "Direct Hal memory leak of 3 Mb(s)" in capsys.readouterr().out
    assert list(msmemscope.analyze("leaks", input_path=dump, mstx_info="test", start_index=0)) == [report]


def test_the_classes_do_the_same_as_the_functions(dump):
    config = LeaksConfig(input_path=str(dump), mstx_info="test", start_index=0)
    findings = LeaksAnalyzer().analyze(config)
    assert findings == msmemscope.check_leaks(str(dump), "test")
    config = InefficientConfig(str(dump), 0, list(msmemscope.analyzer.INEFFICIENT_TYPES), 3000)
    assert InefficientAnalyzer().analyze(config) == msmemscope.check_inefficient(str(dump))
    with pytest.raises(TypeError, match="needs a LeaksConfig, not InefficientConfig"):
        LeaksAnalyzer().analyze(config)


def test_findings_are_a_table(dump):
    findings = msmemscope.check_leaks(str(dump), "test")
    (row,) = findings.rows
    assert (row["device"], row["pool"], row["size_bytes"]) == ("0", "HAL", 3 << 20)
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = findings.to_pandas()
    assert list(frame["size_bytes"]) == [3 << 20]
    table = pyarrow.table(findings)
    assert table.column("pool").to_pylist() == ["HAL"]
    pandas.testing.assert_frame_equal(table.to_pandas(), frame, check_dtype=False)


def test_the_recording_itself_can_be_asked(run):
    result = run(PROGRAM)
    (trace,) = result.files("recording.trace")
    (dump,) = result.files("memscope_dump_*.csv")
    of_trace, of_dump = (msmemscope.check_leaks(path, "test").rows for path in (trace, dump))
    assert [row["address"] for row in of_trace] == [row["address"] for row in of_dump]
    assert "small_framework.py:" in of_trace[0]["line"]
    assert "script.py(9): <module>" in of_trace[0]["python_stack"], "also without asking for stacks in the files"


def test_inefficient_memory(dump):
    before = dump.read_text().count("\n")
    reports = msmemscope.check_inefficient(input_path=str(dump), mem_size=0, idle_threshold=10)
    assert len(reports) == 1
    assert dump.read_text().count("\n") == before


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda path: msmemscope.check_leaks("/nowhere/a.csv", "test", 0), FileNotFoundError),
        (lambda path: msmemscope.check_leaks(path.parent, "test", 0), ValueError),
        (lambda path: msmemscope.check_leaks(path, 5, 0), TypeError),
        (lambda path: msmemscope.check_leaks(5, "test", 0), TypeError),
        (lambda path: msmemscope.check_leaks(path, " ", 0), ValueError),
        (lambda path: msmemscope.check_leaks(path, "test", -1), ValueError),
        (lambda path: msmemscope.check_leaks("x" * 5000, "test"), ValueError),
        (lambda path: msmemscope.check_inefficient(path, mem_size=-1), ValueError),
        (lambda path: msmemscope.check_inefficient(path, inefficient_type="late"), ValueError),
        (lambda path: msmemscope.check_inefficient(path, idle_threshold=0), ValueError),
        (lambda path: msmemscope.analyze("unknown", input_path=path), ValueError),
        (lambda path: msmemscope.get_analyzer_config("unknown"), ValueError),
    ],
)
def test_bad_arguments_change_nothing(tmp_path, call, kind):
    path = tmp_path / "memscope_dump_20260101000000.csv"
    path.write_text("ID\n")
    with pytest.raises(kind):
        call(path)
    assert path.read_text() == "ID\n"


def test_what_there_is():
    assert msmemscope.list_analyzers() == ["leaks", "inefficient"]
    assert msmemscope.get_analyzer_config("inefficient") == {
        "config_class": "InefficientConfig",
        "parameters": ["input_path", "mem_size", "inefficient_type", "idle_threshold"],
    }


def test_a_database_with_names_that_are_no_text_is_an_error(tmp_path):
    path = tmp_path / "memscope_dump_20250102000000.db"
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE memscope_dump ("ID", "Event", "NamXX")')
    connection.commit()
    connection.close()
    path.write_bytes(path.read_bytes().replace(b"NamXX", b"Nam\xff\xfe"))
    with pytest.raises(AnalysisError, match="has no column"):
        msmemscope.check_leaks(str(path), "test")
