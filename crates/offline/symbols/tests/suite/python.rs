//! Lines of Python instructions as the interpreter itself tells them.

use std::process::Command;

use msmemscope_event::{CodeId, Fact, StackId};
use msmemscope_symbols::{Symbols, line_of_instruction};

use crate::recording::Recording;

/// Prints version, first line, table and the line of every instruction for all code objects of some
/// modules of the standard library.
const LISTING: &str = r#"
import sys, inspect, argparse, ast, textwrap, decimal, dataclasses, typing, tarfile, types

def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)

unusual = compile("\n" * 1000 + "def f(x):\n  try:\n    return [y for y in x]\n\n  finally:\n" + "\n" * 300 + "    g()\n", "u", "exec")
version = sys.version_info[0] << 8 | sys.version_info[1]
modules = [inspect, argparse, ast, textwrap, dataclasses, typing, tarfile]
sources = [compile(open(module.__file__).read(), module.__file__, "exec") for module in modules] + [unusual]
for source in sources:
    for code in codes(source):
        lines = ",".join(f"{start}-{end}:{line or 0}" for start, end, line in code.co_lines())
        print(version, code.co_firstlineno, code.co_linetable.hex() or "-", lines or "-")
"#;

#[test]
fn lines_equal_those_of_the_interpreter() {
    let mut checked = 0;
    let mut interpreters = 0;
    for interpreter in ["python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"] {
        let works = Command::new(interpreter).arg("--version").output().is_ok_and(|output| output.status.success());
        if !works {
            continue;
        }
        let output = Command::new(interpreter).args(["-c", LISTING]).output().expect("runs");
        assert!(output.status.success(), "{interpreter}: {}", String::from_utf8_lossy(&output.stderr));
        interpreters += 1;
        for row in String::from_utf8(output.stdout).expect("text").lines() {
            checked += check_code(row);
        }
    }
    assert!(interpreters > 0, "python3 is installed");
    assert!(checked > 50_000, "{checked} instructions");
}

/// Compares all lines of one code object; returns how many instructions that were.
fn check_code(row: &str) -> usize {
    let mut fields = row.split(' ');
    let mut field = || fields.next().expect("four fields");
    let version: u32 = field().parse().expect("a number");
    let first_line: u32 = field().parse().expect("a number");
    let table = hexadecimal(field());
    let mut checked = 0;
    for range in field().split(',').filter(|range| *range != "-") {
        let (range, line) = range.split_once(':').expect("a line");
        let (start, end) = range.split_once('-').expect("a range");
        let (start, end): (u32, u32) = (start.parse().expect("a number"), end.parse().expect("a number"));
        let line: u32 = line.parse().expect("a number");
        for offset in (start..end).step_by(2) {
            let found = line_of_instruction(version, &table, first_line, offset).unwrap_or(0);
            assert_eq!(found, line, "offset {offset} of {row}");
            checked += 1;
        }
    }
    checked
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0.iter();
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("digits")).collect()
}

#[test]
fn python_stacks_have_file_line_and_function() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut recording = Recording::new(directory.path());
    let name = recording.string(b"Trainer.step");
    let file = recording.string(b"/job/train.py");
    recording.write(&Fact::DefineCode {
        id: CodeId(3),
        name,
        file,
        first_line: 40,
        python_version: 3 << 8 | 9,
        line_table: &[4, 2, 4, 5],
    });
    let frames: Vec<u8> = [3_u32, 6, 3, 0, 9, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    recording.write(&Fact::DefinePythonStack { id: StackId(5), frames: &frames });
    let trace = recording.finish();
    let symbols = Symbols::new(trace.definitions(), 0);
    let mut out = String::new();
    symbols.print_python(StackId(5), &mut out);
    symbols.print_python(StackId(6), &mut out);
    let expected = "/job/train.py(42): Trainer.step\n/job/train.py(40): Trainer.step\n<code object 9 is missing>\n<stack 6 is missing>\n";
    assert_eq!(out, expected);
}

#[test]
fn frames_of_our_own_observer_are_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut recording = Recording::new(directory.path());
    let files: [&[u8]; 6] = [
        b"/lib/torch/_ops.py",
        b"/lib/msmemscope/_torch/operators.py",
        b"/lib/torch/_dynamo/eval_frame.py",
        b"/lib/torch/_compile.py",
        b"/job/train.py",
        b"/lib/torch/_compile.py",
    ];
    let name = recording.string(b"call");
    for (number, file) in files.into_iter().enumerate() {
        let (id, file) = (CodeId(number as u32 + 1), recording.string(file));
        let python_version = 3 << 8 | 9;
        recording.write(&Fact::DefineCode { id, name, file, first_line: 7, python_version, line_table: &[] });
    }
    let mut define = |id, codes: &[u32]| {
        let frames: Vec<u8> = codes.iter().flat_map(|code| [*code, 0]).flat_map(u32::to_le_bytes).collect();
        recording.write(&Fact::DefinePythonStack { id: StackId(id), frames: &frames });
    };
    define(1, &[1, 2, 3, 4, 5, 6]);
    define(2, &[1, 3, 4, 5]);
    let trace = recording.finish();
    let symbols = Symbols::new(trace.definitions(), 0);
    let printed = |id| {
        let mut out = String::new();
        symbols.print_python(StackId(id), &mut out);
        out.lines().map(|line| line.split('(').next().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(printed(1), ["/job/train.py", "/lib/torch/_compile.py"]);
    assert_eq!(printed(2).len(), 4, "without the observer everything is shown");
}
