//! Work of operators that one thread prepares and another launches: who prepared what is in the trace, once kernels are
//! wanted, and the job notices nothing.

use msmemscope_event::{Fact, WorkPhase};
use msmemscope_settings::{LevelSet, Recording};

use crate::support::{Lab, RECORDER, appearance, library, run};

const PROGRAM: &str = include_str!("../programs/prepared_work.c");

/// What threads did with work, in the order of the trace: the thread's number by its first appearance, the phase, and the
/// number of the work by its first appearance.
fn told(lab: &Lab) -> Vec<(usize, WorkPhase, usize)> {
    let trace = lab.trace();
    let (mut threads, mut works) = (Vec::new(), Vec::new());
    let mut told = Vec::new();
    let number = |known: &mut Vec<u64>, key: u64| {
        known.iter().position(|it| *it == key).unwrap_or_else(|| {
            known.push(key);
            known.len() - 1
        })
    };
    let mut records = trace.records();
    while let Some(record) = records.next() {
        if let Fact::PreparedWork { phase, address } = record.fact {
            told.push((number(&mut threads, u64::from(record.thread_id)), phase, number(&mut works, address)));
        }
    }
    told
}

fn recording(lab: &Lab, level: LevelSet) -> Recording {
    let mut recording = lab.recording();
    recording.settings.level = level;
    recording
}

#[test]
fn work_is_followed_from_who_prepares_it_to_who_launches_it() {
    let lab = Lab::new();
    let base = lab.compile_library("base.c", PROGRAM, "libnnopbase.so", &["-DBASE"]);
    let base = base.to_str().expect("a path that is a text");
    let operators = lab.compile_library("operators.c", PROGRAM, "libopapi.so", &["-DOPERATORS", base]);
    let program = lab.compile("prepared_work.c", PROGRAM, &["ascendcl", "ascend_hal"]);
    let command = |level: Option<LevelSet>| {
        let mut command = lab.plain(&program);
        command.arg(&operators);
        if let Some(level) = level {
            lab.record_with(&mut command, &[library(RECORDER)], &recording(&lab, level));
        }
        // The library that operators have in common is the one beside them.
        command.env(
            "LD_LIBRARY_PATH",
            format!("{}:{}", lab.path().display(), standin_testing::home().join("lib64").display()),
        );
        let output = run(&mut command);
        assert!(output.status.success(), "{output:?}");
        (appearance(&output).0, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (plain, text) = command(None);
    assert_eq!(text.matches("launched").count(), 4, "{text}");
    let (recorded, _) = command(Some(LevelSet::KERNEL));
    assert_eq!(recorded, plain);
    let expected: Vec<_> = [(1, 0), (2, 1), (3, 1), (4, 0)]
        .into_iter()
        .flat_map(|(thread, work)| {
            [(0, WorkPhase::Prepared, work), (thread, WorkPhase::Begins, work), (thread, WorkPhase::Ends, work)]
        })
        .collect();
    assert_eq!(told(&lab), expected);

    lab.clear();
    let (recorded, _) = command(Some(LevelSet::OP));
    assert_eq!(recorded, plain);
    assert_eq!(told(&lab), [], "nobody has asked for kernels");
}
