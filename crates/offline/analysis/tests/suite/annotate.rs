//! Findings written back into dump files.

use std::fs;
use std::path::Path;

use msmemscope_analysis::inefficient::InefficientSettings;
use msmemscope_analysis::{Questions, analyze};
use msmemscope_dump::annotate::{AnnotateError, RowNotes, annotate};
use msmemscope_import::open;

use crate::support::{Dump, fixture};

fn late() -> Dump {
    let mut dump = Dump::new();
    dump.begin("a").malloc_at(0x1000, 100, "/me/a.py(1): f\n/me/a.py(9): g\n");
    dump.end("a");
    dump.begin("b").access("READ", "b", 0x1000).end("b").begin("c").malloc("PTA", 0x2000, 100).end("c");
    dump.free("PTA", 0x1000);
    dump
}

fn annotate_file(path: &Path, settings: InefficientSettings) -> Result<(), AnnotateError> {
    let imported = open(path).unwrap();
    let mut notes = RowNotes::default();
    for recording in &imported.recordings {
        let questions = Questions { inefficient: Some(settings.clone()), ..Questions::default() };
        analyze(recording, &questions, &mut |_, _| {}).notes.add_to_rows(recording, &mut notes);
    }
    annotate(path, &notes)
}

#[test]
fn a_csv_gets_its_attribute_and_nothing_else_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.csv");
    fs::write(&path, late().text()).unwrap();
    annotate_file(&path, InefficientSettings::default()).unwrap();
    let changed = fs::read_to_string(&path).unwrap();
    assert!(changed.contains("\"{allocation_id:1,size:100,inefficient_type:late_deallocation}\",\"/me/a.py(1): f\n"));
    assert_eq!(changed.replace(",inefficient_type:late_deallocation", ""), late().text());
    // Again, and then with nothing to say: the old note goes.
    annotate_file(&path, InefficientSettings::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
    annotate_file(&path, InefficientSettings { minimum_size_bytes: 1000, ..InefficientSettings::default() }).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), late().text());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no file is left behind");
}

#[test]
fn a_database_keeps_its_other_tables() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            r#"CREATE TABLE memscope_dump ("ID" INTEGER, "Event" TEXT, "Event Type" TEXT, "Name" TEXT,
                "Timestamp(ns)" INTEGER, "Process Id" INTEGER, "Thread Id" INTEGER, "Device Id" TEXT, "Ptr" TEXT,
                "Attr" TEXT, "Call Stack(Python)" TEXT, "Call Stack(C)" TEXT, "Extra" TEXT);
            CREATE TABLE status_info (id INTEGER, key TEXT);
            INSERT INTO status_info VALUES (1, 'kept');"#,
        )
        .unwrap();
    let rows = [
        (1, "OP_LAUNCH", "ATEN_START", "a", "N/A", ""),
        (2, "MALLOC", "PTA", "N/A", "0x10", r#"{"allocation_id":"1","size":"100"}"#),
        (3, "OP_LAUNCH", "ATEN_END", "a", "N/A", ""),
        (4, "ACCESS", "READ", "b", "0x10", r#"{"size":"100","type":"PTA"}"#),
        (5, "MALLOC", "PTA", "N/A", "0x20", r#"{"allocation_id":"2","size":"100"}"#),
        (6, "FREE", "PTA", "N/A", "0x10", r#"{"allocation_id":"1","size":"100"}"#),
    ];
    for (id, event, event_type, name, pointer, attributes) in rows {
        connection
            .execute(
                "INSERT INTO memscope_dump VALUES (?1, ?2, ?3, ?4, ?1 * 10, 7, 7, '0', ?5, ?6, '', '', 'x')",
                (id, event, event_type, name, pointer, attributes),
            )
            .unwrap();
    }
    drop(connection);
    annotate_file(&path, InefficientSettings::default()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(
        one("SELECT Attr FROM memscope_dump WHERE ID = 2"),
        r#"{"allocation_id":"1","size":"100","inefficient_type":"late_deallocation"}"#
    );
    assert_eq!(one("SELECT Attr FROM memscope_dump WHERE ID = 5"), r#"{"allocation_id":"2","size":"100"}"#);
    assert_eq!(one("SELECT key FROM status_info"), "kept");
    assert_eq!(one("SELECT Extra FROM memscope_dump WHERE ID = 2"), "x");
}

#[test]
fn a_file_that_cannot_be_annotated_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "no dump").unwrap();
    let error = annotate(&path, &RowNotes::default()).unwrap_err();
    assert!(matches!(error, AnnotateError::NotADump { .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), "no dump");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_real_file_without_findings_is_rewritten_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memscope_dump_1.csv");
    fs::copy(fixture("aten_compare.csv"), &path).unwrap();
    annotate_file(&path, InefficientSettings::default()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(fixture("aten_compare.csv")).unwrap());
}
