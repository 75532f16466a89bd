//! csv and database say the same, row by row, whatever is in the names.

use std::sync::OnceLock;

use msmemscope_event::{
    AllocationInterface, BlockProperties, CodeId, Device, Fact, MemoryType, PageType, Pool, PythonCallPhase,
    RecordingState, StackId, StringId,
};
use msmemscope_output::{BlockNotes, FinishOptions, Formats, StackFormatter};
use msmemscope_timeline::event::FailureList;
use msmemscope_timeline::{EventFilter, EventKind, EventKinds, TimelineEvent, TimelineSettings};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::support::{PROCESS_ID, Recording, THREAD_ID};

/// Prints stacks as their ids, with everything that makes quoting hard.
struct Stacks;

impl StackFormatter for Stacks {
    fn native(&self, stack: StackId, timestamp_ns: u64, out: &mut String) {
        out.push_str(&format!("lib.so(\"f\"+{}) [0x1]\nfirst at {timestamp_ns}\n", stack.0));
    }

    fn python(&self, stack: StackId, _: u64, out: &mut String) {
        out.push_str(&format!("a,b.py({}): <module>\n", stack.0));
    }
}

const BOTH: Formats = Formats { csv: true, database: true };

/// Rows of a database as text, with attributes the way the csv spells them.
fn database_rows(path: &std::path::Path, table: &str) -> Vec<Vec<String>> {
    let connection = Connection::open(path).expect("database");
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\" ORDER BY rowid")).expect("table");
    let columns = statement.column_count();
    let mut rows = statement.query([]).expect("rows");
    let mut result = Vec::new();
    while let Some(row) = rows.next().expect("row") {
        let cell = |column| match row.get_ref(column).expect("cell") {
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Text(text) => String::from_utf8(text.to_vec()).expect("UTF-8"),
            other => panic!("{other:?}"),
        };
        result.push((0..columns).map(cell).collect());
    }
    result
}

fn attributes_as_in_csv(json: &str) -> String {
    if json.is_empty() {
        return String::new();
    }
    let mut reader = json.trim_start_matches('{').trim_end_matches('}');
    // Keys keep their order only in the text, so split that; values are decoded by a strict reader.
    let mut parts = Vec::new();
    while !reader.is_empty() {
        let mut stream = serde_json::Deserializer::from_str(reader).into_iter::<String>();
        let key = stream.next().expect("key").expect("key");
        let after_key = &reader[stream.byte_offset() + 1..];
        let mut stream = serde_json::Deserializer::from_str(after_key).into_iter::<String>();
        let value = stream.next().expect("value").expect("value");
        parts.push(format!("{key}:{value}"));
        reader = after_key[stream.byte_offset()..].trim_start_matches(',');
    }
    format!("{{{}}}", parts.join(","))
}

fn csv_rows(path: &std::path::Path) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_path(path).expect("csv");
    reader.records().map(|record| record.expect("record").iter().map(str::to_owned).collect()).collect()
}

fn assert_identical(recording: &Recording, device: Device) -> usize {
    let mut from_database = database_rows(&recording.dump(device, "db"), "memscope_dump");
    for row in &mut from_database {
        row[9] = attributes_as_in_csv(&row[9]);
    }
    let from_csv = csv_rows(&recording.dump(device, "csv"));
    assert_eq!(from_database, from_csv);
    from_csv.len()
}

#[test]
fn strange_names_survive_both_ways() {
    let mut recording = Recording::with_wall_offset(1_700_000_000_000_000_000);
    let device = Device::Npu(3);
    let domain = recording.string("domain \"x\", {y:z}");
    let operator = recording.string("op,with \"quotes\"\nand a line");
    let label = recording.string("权重\t\"w\"");
    recording.record(5, Fact::Recording { state: RecordingState::On });
    for (number, message) in
        ["", "plain", "a,b", "say \"hi\"", "two\r\nlines", "中文", "{\"json\":1}"].iter().enumerate()
    {
        let message = message.as_bytes();
        recording.record(10 + number as u64, Fact::Mark { domain: StringId::NONE, device, message });
        recording.record(20 + number as u64, Fact::RangeBegin { domain, device, range_id: number as u64, message });
    }
    recording.record(30, Fact::Mark { domain: StringId::NONE, device, message: &[0xff, 0xfe, b'x'] });
    let detail = recording.string("path:\"0,1\",note:back\\slash");
    let framework = msmemscope_event::Framework::Atb;
    recording.record(31, Fact::OperatorBegin { framework, device, name: operator, detail });
    let properties = BlockProperties::framework(Pool::PytorchCaching, device);
    recording.record(32, Fact::LabelPush { level: 5, label });
    let allocation = Fact::Allocation { properties, address: 0x1000, size_bytes: 64 };
    recording.record_with_stacks(33, StackId(4), StackId(5), allocation);
    let free = Fact::Free { properties, address: 0x1000 };
    recording.record_with_stacks(34, StackId(4), StackId::NONE, free);
    recording.close(60);
    let options =
        FinishOptions { formats: BOTH, owners: true, stack_formatter: Some(&Stacks), ..FinishOptions::default() };
    recording.finish(&options);
    assert_eq!(assert_identical(&recording, device), 1 + 14 + 1 + 1 + 2);
    let rows = csv_rows(&recording.dump(device, "csv"));
    let malloc = rows.iter().find(|row| row[1] == "MALLOC").expect("MALLOC row");
    assert!(malloc[9].contains("owner:PTA@权重\\t\"w\""), "{}", malloc[9]);
    assert_eq!(malloc[10], "a,b.py(5): <module>\n");
    assert_eq!(malloc[11], "lib.so(\"f\"+4) [0x1]\nfirst at 1700000000000000033\n");
    assert!(rows.iter().any(|row| row[3] == "\u{fffd}\u{fffd}x"), "bad bytes are replaced, not dropped");
}

#[test]
fn a_larger_recording_over_three_devices() {
    let mut recording = Recording::with_wall_offset(1_700_000_000_000_000_000);
    recording.record(1, Fact::Recording { state: RecordingState::On });
    let mut time = 10;
    for round in 0..1000u64 {
        let pinned = BlockProperties {
            pool: Pool::HostPinned,
            device: Device::Host,
            memory_type: MemoryType::Host,
            page_type: PageType::Normal,
            interface: AllocationInterface::Alloc,
            module_id: 3,
        };
        for properties in [
            BlockProperties::framework(Pool::PytorchCaching, Device::Npu((round % 2) as u16)),
            BlockProperties { pool: Pool::Hal, device: Device::Npu(1), memory_type: MemoryType::Device, ..pinned },
            pinned,
        ] {
            // Two events per clock tick, so that ties have to be resolved.
            time += round % 2;
            let address = 0x1000 * (round % 64 + 1);
            recording.record(time, Fact::Allocation { properties, address, size_bytes: 512 + round });
            if round % 3 != 0 {
                recording
                    .record(time, Fact::Mark { domain: StringId::NONE, device: Device::Unknown, message: b"between" });
                time += 1;
                recording.record(time, Fact::Free { properties, address });
            }
        }
    }
    recording.close(time + 1);
    let report = recording.finish(&FinishOptions { formats: BOTH, ..FinishOptions::default() });
    assert_eq!(report.files.len(), 6);
    let rows: usize =
        [Device::Npu(0), Device::Npu(1), Device::Host].map(|device| assert_identical(&recording, device)).iter().sum();
    assert!(rows > 9_000, "{rows}");
    assert!(report.summary.pools.iter().any(|pool| pool.residual_blocks > 0), "the recording reuses live addresses");
}

#[test]
fn rows_are_sorted_by_time_and_numbered() {
    let mut recording = Recording::new();
    let properties = BlockProperties::framework(Pool::PytorchCaching, Device::Npu(0));
    for number in 0..50u64 {
        recording.record(7, Fact::Allocation { properties, address: 0x1000, size_bytes: number + 1 });
    }
    recording.close(8);
    recording.finish(&FinishOptions { formats: BOTH, ..FinishOptions::default() });
    let rows = csv_rows(&recording.dump(Device::Npu(0), "csv"));
    assert_eq!(rows.len(), 100, "49 replaced blocks and one closed at the end");
    for (number, pair) in rows.windows(2).enumerate() {
        let time = |row: &Vec<String>| row[4].parse::<u64>().expect("number");
        assert!(time(&pair[0]) < time(&pair[1]), "all rows concern one place");
        assert_eq!(pair[0][0], number.to_string());
    }
}

#[test]
fn kinds_that_were_not_asked_for_are_absent() {
    let mut recording = Recording::new();
    let properties = BlockProperties::framework(Pool::PytorchCaching, Device::Npu(0));
    recording.record(5, Fact::Mark { domain: StringId::NONE, device: Device::Npu(0), message: b"x" });
    recording.record(7, Fact::Allocation { properties, address: 0x1000, size_bytes: 10 });
    recording.record(8, Fact::Free { properties, address: 0x1000 });
    recording.close(9);
    let kinds = EventKinds { allocations: false, frees: false, launches: false, accesses: false };
    let timeline =
        TimelineSettings { filter: EventFilter { kinds, ..EventFilter::ALL }, ..TimelineSettings::default() };
    let report = recording.finish(&FinishOptions { timeline, ..FinishOptions::default() });
    assert_eq!(report.rows, 1);
    assert_eq!(report.summary.events_hidden, 2);
    assert_eq!(report.summary.pools[0].allocations, 1, "hidden events still count");
}

#[test]
fn python_calls_have_a_file_per_thread_and_a_table_per_process() {
    let mut recording = Recording::with_wall_offset(1_000_000);
    let function = recording.string("forward");
    let file = recording.string("/data/my, model.py");
    let region = recording.string("user \"region\"");
    let code = CodeId(1);
    recording.record(
        1,
        Fact::DefineCode { id: code, name: function, file, first_line: 12, python_version: 0x030b, line_table: b"" },
    );
    let properties = BlockProperties::framework(Pool::PytorchCaching, Device::Npu(0));
    recording.record(10, Fact::Allocation { properties, address: 0x1000, size_bytes: 10 });
    let call = |phase, code, name| Fact::PythonCall { phase, code, name };
    recording.record(20, call(PythonCallPhase::AlreadyOpen, code, StringId::NONE));
    recording.record(20, call(PythonCallPhase::NamedBegin, CodeId::NONE, region));
    recording.record(25, call(PythonCallPhase::End, CodeId::NONE, StringId::NONE));
    recording.record(25, call(PythonCallPhase::Begin, code, StringId::NONE));
    recording.record(26, call(PythonCallPhase::End, CodeId::NONE, StringId::NONE));
    recording.close(60);
    let report = recording.finish(&FinishOptions { formats: BOTH, ..FinishOptions::default() });
    assert_eq!(report.files.len(), 3);
    let trace = report.files.last().expect("python trace");
    let name = trace.path.file_name().expect("name").to_string_lossy().into_owned();
    assert!(name.starts_with(&format!("python_trace_{THREAD_ID}_")), "{name}");
    let expected = [
        ["user \"region\"", "1000021", "1000025"],
        ["/data/my, model.py(12): forward", "1000026", "1000027"],
        ["/data/my, model.py(12): forward", "1000020", "1000060"],
    ];
    let rows = csv_rows(&trace.path);
    let from_database = database_rows(&recording.dump(Device::Npu(0), "db"), &format!("python_trace_{PROCESS_ID}"));
    assert_eq!(rows, from_database);
    for (row, expected) in rows.iter().zip(expected) {
        assert_eq!(row[..3], expected);
        assert_eq!(row[3..], [THREAD_ID.to_string(), PROCESS_ID.to_string()]);
    }
    assert_eq!(rows.len(), expected.len());
}

/// Lists two blocks behind every failure.
struct AliveAtFailures;

impl BlockNotes for AliveAtFailures {
    fn owner(&self, _: u64) -> Option<&str> {
        None
    }

    fn inefficiency(&self, _: u64) -> Option<&str> {
        None
    }

    fn behind(&self, event: &TimelineEvent) -> &[TimelineEvent] {
        static EVENTS: OnceLock<Vec<TimelineEvent>> = OnceLock::new();
        EVENTS.get_or_init(|| {
            let listed = |list, address| TimelineEvent {
                native_stack: StackId(3),
                python_stack: StackId(4),
                kind: EventKind::AliveAtFailure { list, pool: Pool::Hal, address, size_bytes: 10, allocated_ns: 2 },
                ..event.clone()
            };
            vec![listed(FailureList::Recent, 0x10), listed(FailureList::Largest, 0x20)]
        })
    }
}

#[test]
fn what_was_alive_at_a_failure_follows_it_in_both_formats() {
    let mut recording = Recording::new();
    let properties = BlockProperties::from_driver_flag(0);
    recording.record(2, Fact::Allocation { properties, address: 0x10, size_bytes: 10 });
    recording.record(5, Fact::AllocationFailed { properties, size_bytes: 99, flag: 7, error: 6 });
    recording.record(6, Fact::Free { properties, address: 0x10 });
    recording.close(100);
    let options = FinishOptions {
        formats: BOTH,
        notes: Some(&AliveAtFailures),
        stack_formatter: Some(&Stacks),
        ..FinishOptions::default()
    };
    recording.finish(&options);
    assert_eq!(assert_identical(&recording, Device::Npu(0)), 5);
    let rows = csv_rows(&recording.dump(Device::Npu(0), "csv"));
    let detail: Vec<[&str; 6]> = rows[1..4]
        .iter()
        .map(|row| [&row[0], &row[1], &row[2], &row[3], &row[8], &row[9]].map(String::as_str))
        .collect();
    assert_eq!(
        detail,
        [
            ["1", "OOM_DETAIL", "OOM_TRIGGER", "OOM_Trigger", "N/A", "{func:halMemAlloc,req_size:99,flag:7}"],
            [
                "2",
                "OOM_DETAIL",
                "OOM_RECENT_ALLOC",
                "OOM_RecentAlloc",
                "N/A",
                "{pool:HAL,ptr:0x0000000000000010,size:10,timestamp:2}"
            ],
            [
                "3",
                "OOM_DETAIL",
                "OOM_TOP_ALLOC",
                "OOM_TopAlloc",
                "N/A",
                "{pool:HAL,ptr:0x0000000000000020,size:10,timestamp:2}"
            ],
        ]
    );
    assert_eq!(rows[2][10], "a,b.py(4): <module>\n");
    assert!(rows[2][11].ends_with("first at 2\n"), "frames are those of the allocation: {}", rows[2][11]);
}
