//! Damaged files: questions are answered or refused, nothing crashes, and no input changes unless it was annotated
//! as a whole.

use std::fs;

use msmemscope_analysis::marks::MarkSettings;
use msmemscope_analysis::{Questions, analyze};
use msmemscope_dump::annotate::{RowNotes, annotate};
use msmemscope_import::open;
use msmemscope_report as text;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use unicode_width::UnicodeWidthStr;

use crate::support::{Dump, fixture};

/// A dump with everything in it: steps, operators, accesses, marks, a failure, several pools.
fn rich() -> Vec<u8> {
    let mut dump = Dump::new();
    dump.system("ACL_INIT");
    for step in 1..=5u64 {
        dump.step_begin().mark("here").begin("aten.mm");
        dump.malloc_with(
            "PTA",
            0,
            0x10_0000 * step,
            4096,
            ",used:4096,total:8192,owner:PTA@model@weight",
            "a.py(1): f\n",
        );
        dump.end("aten.mm").begin("aten.add").access("READ", "aten.add", 0x10_0000 * step).end("aten.add");
        dump.malloc("HAL", 0x9000_0000 + 0x1000 * step, 512).malloc("ATB", 0x5000 * step, 64).kernel("k");
        dump.free("ATB", 0x5000 * step).refused(1 << 30).step_end();
    }
    dump.text().as_bytes().to_vec()
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Vec<u8>, usize)> {
    let interesting = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::sample::select(vec![
            b"\"".to_vec(),
            b"\n".to_vec(),
            b",".to_vec(),
            b"18446744073709551615".to_vec(),
            b"-1".to_vec(),
            b"MALLOC".to_vec(),
            b"FREE".to_vec(),
            b"step start".to_vec(),
        ]),
    ];
    (any::<prop::sample::Index>(), interesting, 0usize..40)
}

fn survive(original: &[u8], name: &str, cases: u32) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    TestRunner::new_with_rng(config, random)
        .run(&prop::collection::vec(change(), 1..8), |changes| {
            let mut bytes = original.to_vec();
            for (place, new, removed) in changes {
                let at = place.index(bytes.len());
                let end = (at + removed).min(bytes.len());
                bytes.splice(at..end, new);
            }
            fs::write(&path, &bytes).unwrap();
            let mut notes = RowNotes::default();
            let imported = open(&path);
            for recording in imported.iter().flat_map(|imported| &imported.recordings) {
                let mut questions = Questions::all();
                questions.marks = Some(MarkSettings { message: "here".into(), start_index: 0 });
                let answers = analyze(recording, &questions, &mut |_, _| {});
                let shown = [
                    text::answers::render(&answers, true, text::Style::Full),
                    text::owners(answers.owners.as_ref().unwrap()),
                    text::inefficient(answers.inefficient.as_ref().unwrap()),
                    text::out_of_memory(answers.out_of_memory.as_ref().unwrap()),
                    text::fragmentation(answers.fragmentation.as_ref().unwrap()),
                    text::marks(answers.marks.as_ref().unwrap()),
                ];
                prop_assert!(shown.iter().all(|text| !text.is_empty()));
                for line in shown.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with("Direct ")) {
                    prop_assert!(UnicodeWidthStr::width(line) <= text::layout::WIDTH, "{line}");
                }
                answers.notes.add_to_rows(recording, &mut notes);
                serde_json::to_string(&answers).unwrap();
            }
            prop_assert_eq!(&fs::read(&path).unwrap(), &bytes, "asking changes nothing");
            if annotate(&path, &notes).is_err() {
                prop_assert_eq!(&fs::read(&path).unwrap(), &bytes, "a refused file stays as it was");
            }
            prop_assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no file is left behind");
            Ok(())
        })
        .unwrap();
}

#[test]
fn damaged_csv_files_are_survived() {
    survive(&rich(), "memscope_dump_1.csv", 8000);
}

#[test]
fn damaged_databases_are_survived() {
    survive(&fs::read(fixture("memscope_dump_20260527062213.db")).unwrap(), "memscope_dump_1.db", 2000);
}
