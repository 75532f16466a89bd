//! Bad input: one clear error or skipped rows with a count, never a panic, never a changed file.

use std::fs;
use std::path::Path;

use msmemscope_import::{SkipReason, open};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::support::{HEADER, events, fixture, open_rows};

fn error_of(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    fs::write(&path, bytes).unwrap();
    let text = open(&path).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text:?} is one line");
    text.replace(&path.display().to_string(), "INPUT")
}

#[test]
fn garbage_is_named() {
    let format_error = "INPUT is neither a dump (csv or db) nor a recording: ";
    assert_eq!(error_of(b""), format!("{format_error}the file is empty"));
    assert_eq!(error_of(b"\x00\x01\x02"), format!("{format_error}it holds binary data"));
    assert_eq!(error_of(b"\x1f\x8b123"), format!("{format_error}it is a gzip archive"));
    assert_eq!(
        error_of(b"some,other,csv\n1,2,3\n"),
        "INPUT is not a memory dump: column 1 is \"some\" instead of \"ID\""
    );
    assert_eq!(
        error_of(format!("{HEADER}\nx,y\n").as_bytes()),
        "INPUT has no usable row; 1 skipped, the first because of: too few cells (row 1)"
    );
    assert!(error_of(b"SQLite format 3\0 and then nonsense").starts_with("database INPUT cannot be used: "));
    assert!(error_of(b"MSMSCOPE and then nothing").starts_with("recording INPUT cannot be used: "));
}

#[test]
fn missing_files_are_named() {
    let error = open(Path::new("/nowhere/memscope_dump_1.csv")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/memscope_dump_1.csv: No such file or directory (os error 2)");
}

#[test]
fn a_database_without_the_table_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE other (a INTEGER)").unwrap();
    drop(connection);
    let text = open(&path).unwrap_err().to_string();
    assert!(text.ends_with("cannot be used: no table memscope_dump or leaks_dump"), "{text}");
}

const COLUMNS: &str = r#""ID","Event","Event Type","Name","Timestamp(ns)","Process Id","Thread Id","Device Id","Ptr""#;

/// What is wrong with a database made by some SQL, after `change` was done to its bytes.
fn database_error(sql: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let text = open(&path).unwrap_err().to_string();
    text.split("cannot be used: ").nth(1).unwrap_or(&text).to_owned()
}

#[test]
fn a_column_name_that_is_no_text_is_no_panic() {
    let sql = format!("CREATE TABLE memscope_dump ({COLUMNS}, \"AttXX\")");
    let name = b"AttXX";
    let error = database_error(&sql, |bytes| {
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        bytes[at + 3..at + 5].copy_from_slice(b"\xff\xfe");
    });
    assert_eq!(error, "table memscope_dump has no column \"Attr\"");
}

#[test]
fn rows_that_are_computed_are_refused() {
    let endless = format!(
        "CREATE VIEW memscope_dump AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
         SELECT i AS {} FROM n",
        COLUMNS.replace(',', ", i AS ") + ", i AS \"Attr\""
    );
    assert_eq!(database_error(&endless, |_| ()), "memscope_dump is not a table with rows of its own");
    let computed = format!("CREATE TABLE memscope_dump ({COLUMNS}, \"Attr\" AS (hex(zeroblob(400000000))))");
    assert_eq!(database_error(&computed, |_| ()), "column \"Attr\" of memscope_dump is computed");
}

#[test]
fn a_database_yields_no_more_than_it_stores() {
    let default = "x".repeat(100_000);
    let repeated = format!(
        "CREATE TABLE memscope_dump ({COLUMNS});
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO memscope_dump SELECT i, 'MALLOC', 'HAL', '', i, 1, 1, '0', '0x10' FROM n;
         ALTER TABLE memscope_dump ADD COLUMN \"Attr\" DEFAULT '{default}'"
    );
    let error = database_error(&repeated, |_| ());
    assert!(error.starts_with("it yields more than its size allows"), "{error}");
}

#[test]
fn pipes_and_files_of_holes_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("memscope_dump_1.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = open(&pipe).unwrap_err().to_string();
    assert!(error.ends_with(": not a regular file"), "{error}");
    let holes = directory.path().join("memscope_dump_2.csv");
    fs::write(&holes, format!("{HEADER}\n{}", "x".repeat(600))).unwrap();
    fs::File::options().write(true).open(&holes).unwrap().set_len(64 << 30).unwrap();
    let error = open(&holes).unwrap_err().to_string();
    assert!(error.ends_with(" bytes of it were never written"), "{error}");
}

#[test]
fn bad_rows_are_skipped_and_counted() {
    let imported = open_rows(&[
        r#"1,MALLOC,PTA,N/A,1,7,7,0,0x10,"{size:10}",,"#,
        r#"x,MALLOC,PTA,N/A,1,7,7,0,0x20,"{size:10}",,"#,
        r#"3,MALLOC,PTA,N/A,1,7,7,0,0x3"#,
        r#"4,MALLOC,PTA,N/A,5,7,7,0,nowhere,"{size:10}",,"#,
        r#"5,FREE,PTA,N/A,6,7,7,0,0x10,"{size:10}",,"#,
        r#"6,BOGUS,PTA,N/A,6,7,7,0,0x10,"{size:10}",,"#,
    ]);
    let report = &imported.report;
    assert_eq!((report.rows_used, report.rows_skipped()), (2, 4));
    assert_eq!(report.first_problem(), Some((SkipReason::BadNumber, 2)));
    assert_eq!(report.skipped(SkipReason::TooFewCells), 1);
    assert_eq!(report.skipped(SkipReason::BadAddress), 1);
    assert_eq!(report.skipped(SkipReason::UnknownEvent), 1);
}

#[test]
fn files_without_rows_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["memscope_dump_1.csv", "memscope_dump_2.csv"].map(|name| directory.path().join(name));
    paths.iter().for_each(|path| fs::write(path, format!("{HEADER}\n")).unwrap());
    let imported = open(&paths[0]).unwrap();
    assert!(imported.recordings.is_empty());
    let notice = format!("no events in {}", paths[0].display());
    assert_eq!(imported.report.notice(), Some(notice.clone()));
    let notices = open(directory.path()).unwrap().report.notice();
    assert_eq!(notices, Some(format!("{notice} and 1 other file")));
}

#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Overwrite(prop::sample::Index, Vec<u8>),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<prop::sample::Index>();
    let nasty = prop_oneof![
        Just(b"\"".to_vec()),
        Just(b",".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"{".to_vec()),
        Just(b"99999999999999999999".to_vec()),
        Just(b"-".to_vec()),
        Just(b"\xff\xfe".to_vec()),
        prop::collection::vec(any::<u8>(), 1..8),
    ];
    prop_oneof![
        at().prop_map(Damage::Cut),
        (at(), nasty.clone()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (at(), nasty).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (at(), 1usize..200).prop_map(|(at, length)| Damage::Remove(at, length)),
        (at(), 1usize..300).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    if bytes.is_empty() {
        return;
    }
    match damage {
        Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Damage::Overwrite(at, new) => {
            let at = at.index(bytes.len());
            let end = (at + new.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        Damage::Insert(at, new) => {
            let at = at.index(bytes.len());
            bytes.splice(at..at, new.iter().copied());
        }
        Damage::Remove(at, length) => {
            let at = at.index(bytes.len());
            bytes.drain(at..(at + length).min(bytes.len()));
        }
        Damage::Repeat(at, length) => {
            let at = at.index(bytes.len());
            let piece = bytes[at..(at + length).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// Opens damaged copies of a file: an error or facts, and the copy stays as it was.
fn survive_damage(name: &str, cases: u32) {
    let original = fs::read(fixture(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    TestRunner::new_with_rng(config, random)
        .run(&prop::collection::vec(damage(), 1..6), |damages| {
            let mut bytes = original.clone();
            damages.iter().for_each(|damage| apply(&mut bytes, damage));
            fs::write(&path, &bytes).unwrap();
            match open(&path) {
                Ok(imported) => {
                    for recording in &imported.recordings {
                        events(recording);
                    }
                }
                Err(error) => prop_assert!(!error.to_string().contains('\n')),
            }
            prop_assert_eq!(&fs::read(&path).unwrap(), &bytes, "the input is never changed");
            Ok(())
        })
        .unwrap();
}

#[test]
fn damaged_csv_files_are_survived() {
    survive_damage("aten_compare.csv", 4000);
    survive_damage("memscope_dump_20250428113811.csv", 4000);
}

#[test]
fn damaged_databases_are_survived() {
    survive_damage("memscope_dump_20260527062213.db", 2000);
}
