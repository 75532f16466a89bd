//! `export`: files for other tools. What those tools make of them is tested where they are at hand (tests/browser,
//! tests/torch); here are the numbers, and what goes wrong.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::support::{Bench, assert_success, run, stderr, stdout};

/// Blocks of a pool and of the driver, some of which stay.
const SCRIPT: &str = "init device:0 pool:1048576 step:0 pool:4096 poolfree endstep step:0 pool:8192 endstep \
                      alloc:2097152 alloc:4096 free raise:9";
/// The same without a pool.
const DRIVER_SCRIPT: &str = "init device:0 alloc:2097152 alloc:1048576 free alloc:4096 raise:9";

fn recorded(script: &str) -> Bench {
    let bench = Bench::new();
    bench.record(&[], script);
    bench
}

fn export(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = bench.msmemscope(["export".as_ref(), bench.output().as_os_str()]);
    command.args(arguments);
    run(command)
}

fn exported(bench: &Bench, format: &str, name: &str) -> PathBuf {
    let path = bench.path(name);
    let output = export(bench, &[&format!("--to={format}"), "-o", &path.display().to_string()]);
    assert_success(&output);
    assert!(stdout(&output).starts_with("Wrote "), "{}", stdout(&output));
    path
}

/// Peak and bytes alive at the end of each pool.
fn pools(bench: &Bench) -> Vec<(u64, u64)> {
    let output = run(bench.msmemscope(["analyze".as_ref(), bench.output().as_os_str(), "--json".as_ref()]));
    let results: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let pools = results["processes"][0]["summary"]["pools"].as_array().expect("pools").clone();
    let number = |pool: &Value, key: &str| pool[key].as_u64().expect(key);
    let of_pool = |pool: &Value| (number(pool, "peak_used_bytes"), number(pool, "end_used_bytes"));
    pools.iter().map(of_pool).collect()
}

fn folded_totals(text: &str) -> Vec<u64> {
    let mut totals = std::collections::BTreeMap::<&str, u64>::new();
    for line in text.lines() {
        let (stack, bytes) = line.rsplit_once(' ').expect("bytes");
        *totals.entry(stack.split(';').next().expect("a pool")).or_default() += bytes.parse::<u64>().expect("a number");
    }
    totals.into_values().collect()
}

#[test]
fn folded_stacks_add_up_to_what_the_pools_had() {
    let bench = recorded(SCRIPT);
    let text = |kind: &str| {
        let output = export(&bench, &["--to=folded", &format!("--memory={kind}"), "--output=-"]);
        assert_success(&output);
        stdout(&output)
    };
    let sorted = |mut numbers: Vec<u64>| {
        numbers.retain(|number| *number > 0);
        numbers.sort_unstable();
        numbers
    };
    let pools = pools(&bench);
    assert!(!pools.is_empty());
    let peaks = sorted(pools.iter().map(|pool| pool.0).collect());
    let alive = sorted(pools.iter().map(|pool| pool.1).collect());
    assert_eq!(sorted(folded_totals(&text("peak"))), peaks);
    assert_eq!(sorted(folded_totals(&text("alive"))), alive);
    assert_eq!(text("leaked"), text("alive"));
    assert!(sorted(folded_totals(&text("allocated"))) >= peaks);
}

#[test]
fn speedscope_has_a_profile_per_pool_and_kind() {
    let bench = recorded(SCRIPT);
    let text = std::fs::read_to_string(exported(&bench, "speedscope", "a.json")).expect("a file");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let frames = file["shared"]["frames"].as_array().expect("frames").len() as u64;
    let profiles = file["profiles"].as_array().expect("profiles");
    let mut peaks: Vec<u64> = Vec::new();
    for profile in profiles {
        let samples = profile["samples"].as_array().expect("samples");
        let weights: Vec<u64> = serde_json::from_value(profile["weights"].clone()).expect("weights");
        assert_eq!(samples.len(), weights.len());
        assert_eq!(profile["endValue"].as_u64(), Some(weights.iter().sum()));
        let places: Vec<Vec<u64>> = serde_json::from_value(profile["samples"].clone()).expect("places");
        assert!(places.iter().flatten().all(|place| *place < frames));
        if profile["name"].as_str().expect("a name").ends_with("at the peak") {
            peaks.extend(profile["endValue"].as_u64());
        }
    }
    let mut expected: Vec<u64> = pools(&bench).iter().map(|pool| pool.0).collect();
    expected.sort_unstable();
    peaks.sort_unstable();
    assert_eq!(peaks, expected);
}

#[test]
fn firefox_profiler_has_a_thread_per_pool_and_kind() {
    let bench = recorded(SCRIPT);
    let text = std::fs::read_to_string(exported(&bench, "firefox-profiler", "a.json")).expect("a file");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(file["meta"]["product"], "device memory");
    let mut peaks: Vec<u64> = Vec::new();
    for thread in file["threads"].as_array().expect("threads") {
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "bytes");
        let weights: Vec<u64> = serde_json::from_value(samples["weight"].clone()).expect("weights");
        let stacks: Vec<u64> = serde_json::from_value(samples["stack"].clone()).expect("every sample has a stack");
        let known = thread["stackTable"]["length"].as_u64().expect("a number");
        assert!(stacks.len() == weights.len() && stacks.iter().all(|stack| *stack < known), "{thread}");
        if thread["name"].as_str().expect("a name").ends_with("at the peak") {
            peaks.push(weights.iter().sum());
        }
    }
    let mut expected: Vec<u64> = pools(&bench).iter().map(|pool| pool.0).collect();
    expected.sort_unstable();
    peaks.sort_unstable();
    assert_eq!(peaks, expected);
}

/// Read by Python's own pickle.
#[test]
fn a_snapshot_of_pytorch_has_what_is_alive() {
    const READER: &str = "import pickle, sys
snapshot = pickle.load(open(sys.argv[1], 'rb'))
segments = snapshot['segments']
for segment in segments:
    blocks = segment['blocks']
    assert sum(block['size'] for block in blocks) == segment['total_size'], segment
    ends = [block['address'] + block['size'] for block in blocks]
    assert ends[:-1] == [block['address'] for block in blocks[1:]], segment
print(sum(segment['allocated_size'] for segment in segments))
print(sum(len([1 for block in segment['blocks'] if block['state'] == 'active_allocated']) for segment in segments))
for trace in snapshot['device_traces']:
    times = [entry['time_us'] for entry in trace]
    assert times == sorted(times)
    print(*[entry['action'] for entry in trace])";
    let bench = recorded(DRIVER_SCRIPT);
    let path = exported(&bench, "torch-snapshot", "snapshot.pickle");
    let mut command = bench.command("python3");
    command.args(["-c", READER]).arg(path);
    let output = run(command);
    assert_success(&output);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    let (_, alive_bytes) = pools(&bench).remove(0);
    assert_eq!(lines, [&alive_bytes.to_string(), "2", "alloc alloc free_requested free_completed alloc"], "{text}");
}

fn analyzed(bench: &Bench, path: &std::path::Path) -> Value {
    let output = run(bench.msmemscope(["analyze".as_ref(), path.as_os_str(), "--json".as_ref()]));
    assert_success(&output);
    serde_json::from_str::<Value>(&stdout(&output)).expect("JSON")["processes"][0].clone()
}

/// A snapshot that we wrote is a recording again.
#[test]
fn exported_snapshots_can_be_imported() {
    let bench = recorded(DRIVER_SCRIPT);
    let path = exported(&bench, "torch-snapshot", "snapshot.pickle");
    let (peak_bytes, alive_bytes) = pools(&bench).remove(0);
    let answers = analyzed(&bench, &path);
    let pools = answers["summary"]["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|pool| pool["pool"] == "PTA").expect("the caching pool");
    assert_eq!(pool["peak_used_bytes"].as_u64(), Some(peak_bytes));
    assert_eq!((pool["allocations"].as_u64(), pool["frees"].as_u64()), (Some(3), Some(1)));
    assert_eq!(pool["end_used_bytes"].as_u64(), Some(alive_bytes));
    let said = stdout(&run(bench.msmemscope(["analyze".as_ref(), path.as_os_str()])));
    assert!(said.starts_with("A snapshot shows one moment, so it is not known what leaks"), "{said}");
    assert!(!said.contains("mark steps"), "nobody can any more: {said}");
}

/// The history begins late: one block of before is freed in it, another stays. Every protocol says the same.
#[test]
fn snapshots_of_pytorch_are_read_in_every_protocol() {
    const WRITER: &str = "import pickle, sys
at = 1 << 44
frames = [{'filename': 'train.py', 'line': 3, 'name': 'step'}, {'filename': 'train.py', 'line': 9, 'name': 'main'}]
block = lambda address, size, state: {'address': address, 'size': size, 'requested_size': size - 12, 'state': state, 'frames': frames}
blocks = [block(at, 1024, 'active_allocated'), block(at + 1024, 2048, 'inactive'), block(at + 3072, 4096, 'active_allocated')]
segment = {'device': 1, 'address': at, 'total_size': 2097152, 'allocated_size': 5120, 'stream': 0, 'segment_pool_id': (0, 0), 'blocks': blocks}
entry = lambda action, address, size: {'action': action, 'addr': address, 'size': size, 'stream': 0, 'frames': frames, 'time_us': 7}
history = [entry('free_requested', at + 1024, 2040), entry('free_completed', at + 1024, 2040), entry('alloc', at + 3072, 4000), entry('oom', 0, 1 << 40)]
for protocol in range(6):
    with open(f'{sys.argv[1]}/{protocol}.pickle', 'wb') as file:
        pickle.dump({'segments': [segment], 'device_traces': [[], history], 'allocator_settings': {}}, file, protocol)
with open(f'{sys.argv[1]}/hostile.pickle', 'wb') as file:
    file.write(b'\\x80\\x04\\x8c\\x02os\\x8c\\x06system\\x93\\x8c\\x05false\\x85R.')
with open(f'{sys.argv[1]}/other.pickle', 'wb') as file:
    pickle.dump({'weights': [1, 2]}, file)";
    let bench = Bench::new();
    let mut command = bench.command("python3");
    command.args(["-c", WRITER]).arg(bench.home.path());
    assert_success(&run(command));
    for protocol in 0..6 {
        let answers = analyzed(&bench, &bench.path(format!("{protocol}.pickle")));
        let pools = answers["summary"]["pools"].as_array().expect("pools");
        let pool = pools.iter().find(|pool| pool["pool"] == "PTA").expect("the caching pool");
        assert_eq!(pool["device"], "1", "{protocol}");
        let numbers = ["allocations", "frees", "peak_used_bytes", "end_used_bytes", "peak_total_bytes"];
        let numbers = numbers.map(|key| pool[key].as_u64().expect(key));
        assert_eq!(numbers, [3, 1, 5120, 5120, 2_097_152], "{protocol}");
        assert!(answers["moments"].to_string().contains("train.py"), "{protocol}");
        let path = bench.path(format!("{protocol}.pickle"));
        let output = run(bench.msmemscope(["info".as_ref(), "--json".as_ref(), path.as_os_str()]));
        let information: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let devices = information["recordings"][0]["devices"].as_array().expect("devices");
        assert!(devices.len() == 1 && devices[0]["device"] == "1" && devices[0]["pool"] == "PTA", "{devices:?}");
        let numbers = ["reserved_bytes", "used_bytes", "blocks"].map(|key| devices[0][key].as_u64().expect(key));
        assert_eq!(numbers, [2_097_152, 5120, 2], "{protocol}");
    }
    for (name, reason) in [("hostile.pickle", "no plain data"), ("other.pickle", "no memory snapshot")] {
        let output = run(bench.msmemscope(["analyze".as_ref(), bench.path(name).as_os_str()]));
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn binary_formats_are_not_empty_and_repeatable() {
    let bench = recorded(SCRIPT);
    for (format, name) in [("perfetto", "a.perfetto"), ("pprof", "a.pb.gz")] {
        let first = std::fs::read(exported(&bench, format, name)).expect("a file");
        let second = std::fs::read(exported(&bench, format, name)).expect("written over");
        assert!(first.len() > 100 && first == second, "{format}");
    }
}

/// Directories cannot tell the processes of one csv file apart.
#[test]
fn a_process_is_chosen_by_its_number() {
    let bench = recorded(SCRIPT);
    bench.record(&[], SCRIPT);
    let texts = bench.recordings().into_iter().map(|recorded| {
        let (_, csv) = recorded.tables("csv").pop_first().expect("a table");
        std::fs::read_to_string(csv).expect("a csv file")
    });
    let both: Vec<String> = texts.collect();
    let rows_of_the_second = both[1].split_once('\n').expect("a header").1;
    std::fs::write(bench.path("both.csv"), format!("{}{rows_of_the_second}", both[0])).expect("a file");
    let snapshot = |arguments: &[&str]| {
        let mut command = bench.msmemscope(["export".as_ref(), bench.path("both.csv").as_os_str()]);
        command.arg("--to=torch-snapshot").args(arguments);
        run(command)
    };
    let refused = snapshot(&[]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    let choice = said.trim_end().rsplit_once("--process=").expect("a choice").1;
    let processes: Vec<&str> = choice.split(", ").collect();
    assert_eq!(processes.len(), 2, "{said}");
    for process in processes {
        let file = format!("{process}.pickle");
        assert_success(&snapshot(&[&format!("--process={process}"), "-o", &bench.path(&file).display().to_string()]));
        assert!(bench.path(&file).is_file());
    }
}

#[test]
fn a_file_that_shows_nothing_says_what_it_needs() {
    let warning_of = |bench: &Bench, format: &str| {
        let output = export(bench, &[&format!("--to={format}"), "-o", &bench.path(format).display().to_string()]);
        assert_success(&output);
        stderr(&output)
    };
    let bench = recorded("init device:0");
    assert!(warning_of(&bench, "torch-snapshot").contains("torch-snapshot needs memory of a device"));
    assert!(warning_of(&bench, "folded").contains("nothing to show in it: folded needs memory"));
    let bench = recorded(SCRIPT);
    assert!(warning_of(&bench, "kernels").contains("kernels needs launches of kernels: record with --level=op,kernel"));
    for format in ["torch-snapshot", "folded", "perfetto"] {
        assert_eq!(warning_of(&bench, format), "");
    }
}

#[test]
fn what_cannot_be_exported_is_one_line() {
    let bench = recorded(SCRIPT);
    let refused = |arguments: &[&str], reason: &str| {
        let output = export(&bench, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    };
    refused(&[], "export needs a format: --to=perfetto|");
    refused(&["--to=flame"], "--to must be one of perfetto, ");
    refused(&["--to=folded", "--memory=all"], "--memory must be one of peak, alive, allocated, not 'all'");
    refused(&["--to=pprof", "--memory=peak"], "--memory is for --to=folded");
    refused(&["--to=pprof", "-o", "/nowhere/a.pb.gz"], "cannot write /nowhere/a.pb.gz: ");
    std::fs::write(bench.path("memory.folded"), "mine").expect("a file");
    refused(&["--to=folded"], "memory.folded exists already");
    assert_eq!(std::fs::read_to_string(bench.path("memory.folded")).expect("a file"), "mine");
    bench.record(&[], SCRIPT);
    refused(&["--to=torch-snapshot"], "holds one process, and these are 2: choose one with --process=");
    refused(&["--to=torch-snapshot", "--process=x"], "--process takes the number of a process, not 'x'");
    refused(&["--to=torch-snapshot", "--process=1"], "there is no process 1: --process takes one of ");
    refused(&["--to=parquet", "-o", "dataset", "--process=1"], "--process is for files; a dataset takes all processes");
    assert!(
        std::fs::read_dir(bench.home.path())
            .expect("listing")
            .all(|entry| { !entry.expect("an entry").file_name().to_string_lossy().contains(".partial") })
    );
}
