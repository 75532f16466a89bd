//! Datasets, read back with the crates that wrote them; snapshots, read back by ourselves.

mod round_trip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use made_recordings::Rank;
use msmemscope_export::parquet as datasets;
use msmemscope_import::{Recording, open};
use msmemscope_timeline::{EventKind, TimelineEvent, TimelineSettings, run};
use parquet::file::reader::{FileReader, SerializedFileReader};

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn rows(dataset: &Path, table: &str) -> i64 {
    let reader =
        |path: PathBuf| SerializedFileReader::new(std::fs::File::open(path).expect("a file")).expect("Parquet");
    files_below(&dataset.join(table)).into_iter().map(|path| reader(path).metadata().file_metadata().num_rows()).sum()
}

fn recording_in(directory: &Path) -> Recording {
    open(directory).expect("a recording").recordings.remove(0)
}

#[test]
fn every_allocation_is_a_block_and_every_file_is_where_engines_look() {
    let home = tempfile::tempdir().expect("temporary directory");
    let directory = home.path().join("rank3");
    let rank = Rank {
        rank: 3,
        world_size: 8,
        host: "left",
        job: "a/b",
        command: "python\0train.py",
        steps: 40,
        kept_bytes: 4096,
    };
    rank.record(&directory);
    let recording = recording_in(&directory);
    let (mut allocations, mut events) = (0, 0);
    let mut count = |event: TimelineEvent| {
        events += i64::from(msmemscope_output::row::has_row(&event));
        allocations += i64::from(matches!(event.kind, EventKind::Malloc(_)));
    };
    run(
        &recording,
        &TimelineSettings { process_ended: false, ..TimelineSettings::default() },
        &mut count,
        &mut |_, _| {},
    );
    let dataset = home.path().join("dataset");
    let written = datasets::write(&recording, &dataset, &mut |_, _| {}).expect("a dataset");
    assert_eq!((written.blocks as i64, written.events as i64), (allocations, events));
    assert_eq!((rows(&dataset, "blocks"), rows(&dataset, "events")), (allocations, events));
    assert_eq!((rows(&dataset, "steps"), rows(&dataset, "recordings")), (40, 1));
    assert_eq!((rows(&dataset, "stacks"), rows(&dataset, "frames")), (3, 3));
    let files = files_below(&dataset);
    let tables: BTreeMap<String, usize> = files.iter().fold(BTreeMap::new(), |mut tables, file| {
        let place = file.strip_prefix(&dataset).expect("below").parent().expect("a directory");
        *tables.entry(place.display().to_string()).or_default() += 1;
        tables
    });
    let of_devices = ["blocks", "events", "steps"].map(|table| format!("{table}/job=a%2Fb/rank=3/device=0"));
    let of_processes = ["frames", "recordings", "stacks"].map(|table| format!("{table}/job=a%2Fb/rank=3"));
    for place in of_devices.iter().chain(&of_processes) {
        assert_eq!(tables.get(place), Some(&1), "{place} in {tables:?}");
    }
    let manifests: Vec<&PathBuf> =
        files.iter().filter(|file| file.extension().is_some_and(|it| it == "json")).collect();
    let [manifest] = manifests[..] else { panic!("{manifests:?}") };
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(manifest).expect("a manifest")).expect("JSON");
    assert_eq!((&manifest["job"], &manifest["rank"], &manifest["world_size"]), (&"a/b".into(), &3.into(), &8.into()));
    let named = manifest["files"].as_array().expect("files");
    assert_eq!(named.len(), files.len() - 1);
    for file in named {
        let content = std::fs::read(dataset.join(file["path"].as_str().expect("a path"))).expect("a file");
        let mut sum = flate2::Crc::new();
        sum.update(&content);
        assert_eq!(
            (file["bytes"].as_u64(), file["crc32"].as_u64()),
            (Some(content.len() as u64), Some(sum.sum().into()))
        );
    }
    // Once more: the same files, not twice as many.
    datasets::write(&recording, &dataset, &mut |_, _| {}).expect("a dataset");
    assert_eq!(files_below(&dataset), files);
}

#[test]
fn blocks_are_sorted_by_time_within_their_row_groups() {
    use parquet::record::RowAccessor;
    let home = tempfile::tempdir().expect("temporary directory");
    made_recordings::training(home.path(), 20_000, 7);
    let dataset = home.path().join("dataset");
    datasets::write(&recording_in(home.path()), &dataset, &mut |_, _| {}).expect("a dataset");
    for (table, column) in [("blocks", 7), ("events", 1)] {
        for path in files_below(&dataset.join(table)) {
            let file = SerializedFileReader::new(std::fs::File::open(path).expect("a file")).expect("Parquet");
            let rows = file.get_row_iter(None).expect("rows");
            let times: Vec<i64> = rows.map(|row| row.expect("a row").get_long(column).expect("a time")).collect();
            assert!(times.len() > 1 && times.is_sorted(), "{table}");
        }
    }
}
