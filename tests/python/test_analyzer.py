"""Offline analyses through Python."""

import json
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


def test_memory_at_a_moment_is_told_by_line_and_as_a_tree(run, capsys):
    (trace,) = run(PROGRAM).files("recording.trace")
    findings = msmemscope.memory_at(trace)
    (pool,) = findings[0]["pools"]
    assert pool["moment"] == "peak" and sum(row["bytes"] for row in findings.rows) == pool["used_bytes"]
    assert "small_framework.py:" in findings.rows[0]["line"]
    assert "At the peak" in capsys.readouterr().out
    (by_call,) = msmemscope.memory_at(trace, by="call-tree")[0]["pools"]
    assert sum(node["bytes"] for node in by_call["tree"]) == pool["used_bytes"]
    grown = msmemscope.memory_grown(trace, "0s", "peak")
    assert grown.rows[0]["to"] == "peak" and sum(row["bytes"] for row in grown.rows) <= pool["used_bytes"]
    for wrong, error in [({"moment": "noon"}, "a moment must be peak"), ({"by": "file"}, "by must be one of line, ")]:
        with pytest.raises(ValueError, match=error):
            msmemscope.memory_at(trace, **wrong)
    with pytest.raises(ValueError, match="never comes to step:99"):
        msmemscope.memory_at(trace, "step:99")


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


def test_every_question_can_be_asked_of_a_path(dump):
    answers = msmemscope.analyze(dump)
    assert str(answers).startswith("No steps were seen")
    assert {"leaks", "moments", "owners", "inefficient", "fragmentation"} <= set(answers.questions)
    assert set(answers.questions) <= set(msmemscope.list_questions())
    for word in msmemscope.list_questions():
        if word == "marks":
            with pytest.raises(ValueError, match="needs parameters"):
                msmemscope.analyze(dump, questions=word)
            continue
        asked = msmemscope.analyze(dump, questions=word)
        assert set(asked.questions) <= {word}


def test_answers_are_objects_tables_and_json(dump):
    answers = msmemscope.analyze([dump], questions=["moments", "fragmentation"])
    assert answers.questions == ["moments", "fragmentation"]
    (process,) = json.loads(answers.to_json())
    assert process["moments"] == answers.moments[0]
    (line,) = [row for row in answers.moments.rows if row["pool"] == "HAL"]
    assert line["moment"] == "peak" and line["process_id"] == process["process_id"]
    with pytest.raises(AttributeError, match="'leaks' was not asked"):
        answers.leaks  # noqa: B018
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert list(answers.to_pandas()["moments"]["pool"]) == [row["pool"] for row in answers.moments.rows]
    assert answers.to_arrow()["moments"].column("pool").to_pylist() == [row["pool"] for row in answers.moments.rows]


def test_what_cannot_be_asked_is_said(dump, tmp_path):
    with pytest.raises(ValueError, match="unknown question 'leek'; known: leaks, moments, curve"):
        msmemscope.analyze(dump, questions=["leaks", "leek"])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        msmemscope.analyze(tmp_path / "nothing.csv", questions="leaks")
    with pytest.raises(TypeError, match="takes no parameter 'mstx_info'"):
        msmemscope.analyze(dump, questions="leaks", mstx_info="test")
