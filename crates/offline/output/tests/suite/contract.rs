//! The checker of the Insight contract: one broken database per rule.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use msmemscope_dump::insight::{Rule, check};
use rusqlite::Connection;

const TABLE: &str = r#"CREATE TABLE "memscope_dump" ("ID" INTEGER PRIMARY KEY, "Event" TEXT, "Event Type" TEXT,
 "Name" TEXT, "Timestamp(ns)" INTEGER, "Process Id" INTEGER, "Thread Id" INTEGER, "Device Id" TEXT, "Ptr" TEXT,
 "Attr" TEXT, "Call Stack(Python)" TEXT, "Call Stack(C)" TEXT);"#;
const POINTER: &str = "0x000012c041400000";
const PYTHON_TABLE: &str = r#"CREATE TABLE "python_trace_9" ("FuncInfo" TEXT, "StartTime(ns)" TEXT,
 "EndTime(ns)" TEXT, "Thread Id" INTEGER, "Process Id" INTEGER);"#;

fn event(id: u64, event: &str, timestamp: &str, attributes: &str) -> String {
    let event_type = if event == "ACCESS" { "READ" } else { "PTA" };
    format!(
        "INSERT INTO memscope_dump VALUES ({id},'{event}','{event_type}','N/A',{timestamp},9,9,'0','{POINTER}','{attributes}','','');"
    )
}

fn block(allocation_id: u64, size: u64) -> String {
    format!(r#"{{"allocation_id":"{allocation_id}","addr":"{POINTER}","size":"{size}"}}"#)
}

/// A small database that Insight would like.
fn good() -> String {
    [
        TABLE.to_owned(),
        "INSERT INTO memscope_dump VALUES (0,'SYSTEM','ACL_INIT','N/A',5,9,9,'N/A','N/A','','','');".to_owned(),
        event(1, "MALLOC", "10", &block(1, 64)),
        event(2, "ACCESS", "11", &block(1, 64)),
        event(3, "FREE", "12", &block(1, 64)),
    ]
    .concat()
}

struct Database {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn database_named(name: &str, sql: &str) -> Database {
    let directory = tempfile::Builder::new().prefix("insight").tempdir().expect("temporary directory");
    let path = directory.path().join(name);
    let connection = Connection::open(&path).expect("database");
    connection.execute_batch("PRAGMA synchronous=OFF").expect("pragma");
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    Database { directory, path }
}

fn database(sql: &str) -> Database {
    database_named("memscope_dump_20250102030405.db", sql)
}

/// Rules that a database breaks.
fn broken(sql: &str) -> Vec<Rule> {
    check(&database(sql).path).violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_good_database_is_clean() {
    let report = check(&database(&good()).path);
    assert!(report.is_clean(), "{:#?}", report.violations);
    assert_eq!(report.rows, 4);
    let legacy = good().replace("memscope_dump", "leaks_dump");
    assert!(check(&database_named("leaks_dump_1.db", &legacy).path).is_clean());
}

#[test]
fn a_database_that_insight_altered_is_still_clean() {
    let altered = [
        good(),
        "CREATE TABLE status_info(id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT);".into(),
        "CREATE TABLE memory_block(id INTEGER); CREATE TABLE memory_allocation(id INTEGER);".into(),
        "PRAGMA user_version=2026060219;".into(),
    ];
    let report = check(&database(&altered.concat()).path);
    assert!(report.is_clean(), "{:#?}", report.violations);
    assert!(report.altered_by_insight);
}

#[test]
fn one_stack_column_or_none_is_fine_and_extra_columns_may_follow() {
    let none = good().replace(r#", "Call Stack(Python)" TEXT, "Call Stack(C)" TEXT"#, "").replace(",'','');", ");");
    assert_eq!(broken(&none), []);
    let one = good().replace(r#""Call Stack(Python)" TEXT, "#, "").replace(",'','');", ",'');");
    assert_eq!(broken(&one), []);
    let extra = good()
        .replace(r#""Call Stack(C)" TEXT"#, r#""Call Stack(C)" TEXT, "More" TEXT"#)
        .replace(",'','');", ",'','','');");
    assert_eq!(broken(&extra), []);
}

#[test]
fn file_names_decide() {
    for name in [
        "memscope_dump_1_0.db",
        "memscope_dump_rank0.db",
        "memscope_dump_.db",
        "Memscope_dump_1.db",
        "memscope_dump_1.sqlite",
    ] {
        assert!(check(&database_named(name, &good()).path).breaks(Rule::FileName), "{name}");
    }
}

#[test]
fn the_file_itself_is_checked() {
    let at = |mode| {
        let database = database(&good());
        std::fs::set_permissions(&database.path, PermissionsExt::from_mode(mode)).expect("own file");
        check(&database.path).breaks(Rule::Permissions)
    };
    assert!(!at(0o640));
    assert!(at(0o440));
    assert!(at(0o666));

    let original = database(&good());
    std::fs::set_permissions(original.directory.path(), PermissionsExt::from_mode(0o777)).expect("own directory");
    assert!(check(&original.path).breaks(Rule::Permissions));
    std::fs::set_permissions(original.directory.path(), PermissionsExt::from_mode(0o750)).expect("own directory");
    let link = original.directory.path().join("memscope_dump_2.db");
    std::os::unix::fs::symlink(&original.path, &link).expect("link");
    assert!(check(&link).breaks(Rule::PlainFile));

    let directory = original.directory.path().join("a$b");
    std::fs::create_dir(&directory).expect("directory");
    let path = directory.join("memscope_dump_2.db");
    std::fs::copy(&original.path, &path).expect("copy");
    assert!(check(&path).breaks(Rule::PathCharacters));
}

#[test]
fn unreadable_files_are_named() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("memscope_dump_1.db");
    assert!(check(&path).breaks(Rule::Readable));
    std::fs::write(&path, b"this is not a database, whatever its name says").expect("writable");
    assert!(check(&path).breaks(Rule::Readable));
    let utf16 = database(&format!("PRAGMA encoding='UTF-16';{}", good()));
    assert!(check(&utf16.path).breaks(Rule::Readable));
}

#[test]
fn a_database_in_wal_mode_is_not_closed() {
    let database = database(&good());
    let connection = Connection::open(&database.path).expect("database");
    connection.execute_batch("PRAGMA journal_mode=WAL; DELETE FROM memscope_dump WHERE ID=0;").expect("wal");
    assert!(check(&database.path).breaks(Rule::ClosedCleanly));
}

#[test]
fn tables_and_columns() {
    assert_eq!(broken("CREATE TABLE other(x);"), [Rule::EventTable]);
    let swapped = good().replace(r#""Event" TEXT, "Event Type" TEXT"#, r#""Event Type" TEXT, "Event" TEXT"#);
    assert_eq!(broken(&swapped), [Rule::Columns, Rule::Columns]);
    let stacks_swapped = good().replace(
        r#""Call Stack(Python)" TEXT, "Call Stack(C)" TEXT"#,
        r#""Call Stack(C)" TEXT, "Call Stack(Python)" TEXT"#,
    );
    assert_eq!(broken(&stacks_swapped), [Rule::Columns, Rule::Columns]);
    let derived = format!("{}CREATE TABLE memory_block(id INTEGER);", good());
    assert_eq!(broken(&derived), [Rule::DerivedTables]);
}

#[test]
fn times_and_devices() {
    assert_eq!(broken(TABLE), [Rule::TimeRange, Rule::UsableDevice]);
    let without_device = good().replace("'0'", "'N/A'");
    assert_eq!(broken(&without_device), [Rule::UsableDevice]);
    let host = good().replace("'0'", "'host'");
    assert_eq!(broken(&host), [Rule::UsableDevice]);
    let text_time = good() + &event(9, "MALLOC", "'soon'", &block(2, 1));
    assert!(broken(&text_time).contains(&Rule::Timestamp));
    let negative = good().replace("'N/A',5,9", "'N/A',-5,9");
    assert_eq!(broken(&negative), [Rule::Timestamp]);
    let number_device = good().replace(r#""Device Id" TEXT"#, r#""Device Id" INTEGER"#);
    assert!(broken(&number_device).iter().all(|rule| matches!(rule, Rule::DeviceText | Rule::UsableDevice)));
    let strange_device = good().replace("'0'", "'0;1'");
    assert!(broken(&strange_device).contains(&Rule::DeviceText));
    let strange_type = good().replace("'PTA'", "'P|TA'");
    assert!(broken(&strange_type).contains(&Rule::TypeText));
}

#[test]
fn pointers_and_attributes() {
    assert!(broken(&good().replace(POINTER, "20615843020800")).contains(&Rule::PointerText));
    assert!(broken(&good().replace(POINTER, "0x12c0")).contains(&Rule::PointerText));
    let list = good() + &event(9, "MALLOC", "20", "[]");
    assert!(broken(&list).contains(&Rule::AttributeObject));
    let number = good() + &event(9, "MALLOC", "20", r#"{"allocation_id":"2","size":64}"#);
    assert_eq!(broken(&number), [Rule::AttributeStrings, Rule::Size]);
    let blank = good() + &event(9, "MALLOC", "20", r#"{"allocation_id": "2","size":"64"}"#);
    assert_eq!(broken(&blank), [Rule::AttributeBlanks]);
    let sizeless = good() + &event(9, "MALLOC", "20", &block(2, 0));
    assert_eq!(broken(&sizeless), [Rule::Size]);
    let nameless = good() + &event(9, "MALLOC", "20", r#"{"size":"64"}"#);
    assert_eq!(broken(&nameless), [Rule::AllocationId]);
    let no_json = good().replace("'N/A','','','');", "'N/A','N/A','','');");
    assert_eq!(broken(&no_json), []);
}

#[test]
fn pairing() {
    let twice = good() + &event(9, "MALLOC", "20", &block(1, 64));
    assert_eq!(broken(&twice), [Rule::AllocationIdUnique]);
    let other_size = good().replace(&event(3, "FREE", "12", &block(1, 64)), &event(3, "FREE", "12", &block(1, 32)));
    assert_eq!(broken(&other_size), [Rule::FreeMatches]);
    let second_free = good() + &event(9, "FREE", "20", &block(1, 64));
    assert_eq!(broken(&second_free), [Rule::Alternation]);
    let foreign_free = good() + &event(9, "FREE", "20", &block(7, 64));
    assert_eq!(broken(&foreign_free), [], "a FREE without MALLOC is ignored");
    let still_live = good() + &event(8, "MALLOC", "20", &block(2, 64)) + &event(9, "MALLOC", "21", &block(3, 64));
    assert_eq!(broken(&still_live), [Rule::Alternation]);
    let late_access = good() + &event(9, "ACCESS", "20", &block(1, 64));
    assert_eq!(broken(&late_access), [Rule::AccessMatches]);
    let other_pointer = event(2, "ACCESS", "11", &block(1, 64));
    let moved = good().replace(&other_pointer, &other_pointer.replace(&format!("'{POINTER}'"), "'0x000012c041400010'"));
    assert_eq!(broken(&moved), [Rule::AccessMatches]);
}

#[test]
fn order_within_blocks() {
    let tie = good().replace("'N/A',11,", "'N/A',10,");
    assert_eq!(broken(&tie), [Rule::StrictOrder]);
    let reused_at_once = good() + &event(9, "MALLOC", "12", &block(2, 64));
    assert_eq!(broken(&reused_at_once), [Rule::StrictOrder]);
}

#[test]
fn python_tables() {
    let call = |start: &str, end: &str, thread: i64, process: i64| {
        format!("INSERT INTO python_trace_9 VALUES ('f','{start}','{end}',{thread},{process});")
    };
    let with = |calls: &[String]| broken(&(good() + PYTHON_TABLE + &calls.concat()));
    assert_eq!(with(&[call("10", "20", 1, 9), call("11", "12", 1, 9), call("13", "20", 1, 9)]), []);
    assert_eq!(with(&[]), [Rule::PythonRows]);
    assert_eq!(with(&[call("N/A", "N/A", 1, 9)]), [Rule::PythonSlices, Rule::PythonRows]);
    assert_eq!(with(&[call("10", "20", 1, 9), call("30", "30", 1, 9)]), [Rule::PythonSlices]);
    assert_eq!(with(&[call("10", "20", 1, 9), call("30", "40", 0, 9)]), [Rule::PythonSlices]);
    assert_eq!(with(&[call("10", "20", 1, 9), call("30", "40", 1, 8)]), [Rule::PythonSlices]);
    assert_eq!(with(&[call("10", "20", 1, 9), call("20", "30", 1, 9)]), [Rule::PythonNesting]);
    assert_eq!(with(&[call("10", "20", 1, 9), call("20", "30", 2, 9)]), []);
    let other_name = format!("{}CREATE TABLE pythonXtraceXsummary(x);", good());
    assert_eq!(broken(&other_name), [Rule::PythonTableName]);
    let columnless = format!("{}CREATE TABLE python_trace_9(\"FuncInfo\" TEXT);", good());
    assert_eq!(broken(&columnless), [Rule::PythonColumns]);
}

#[test]
fn long_lists_are_cut_but_every_rule_is_named() {
    let many: String = (10..500).map(|id| event(id, "MALLOC", &(id + 20).to_string(), "[]")).collect();
    let report = check(&database(&(good() + &many + "CREATE TABLE python_trace_x(y);")).path);
    assert!(report.violation_count > report.violations.len() as u64);
    assert!(report.breaks(Rule::PythonTableName));
    assert!(report.violations.iter().all(|violation| !violation.to_string().contains('\n')));
    assert!(Rule::ALL.iter().all(|rule| !rule.describe().is_empty()));
}
