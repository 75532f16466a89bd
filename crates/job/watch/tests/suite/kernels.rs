//! Looks around single kernels, whose names are known only afterwards.

use std::time::Duration;

use msmemscope_event::{ByteRange, WatchNote};
use msmemscope_watch::operator_name::OperatorPattern;
use msmemscope_watch::{Explicit, HeldLooks, Hunt, HuntBudget, Launch, OperatorCall, Output, Selection, Target};

use crate::support::{BASE, DEVICE, Lab, call};

const ANNOUNCED: &str = "the next one";

fn launch_of(name: &str, newest_generation: u64) -> OperatorCall<'_> {
    OperatorCall { launch: Some(Launch { operator: "aten.chain", newest_generation }), ..call(name, &[]) }
}

fn launch(explicit: &mut Explicit, lab: &mut Lab, name: &str, work: impl FnOnce(&mut Lab)) {
    let blocks = lab.blocks.clone();
    let mut held = HeldLooks::default();
    explicit.before_kernel(&launch_of(ANNOUNCED, u64::MAX), &blocks, &mut held.around(lab));
    work(lab);
    let call = OperatorCall { number: 3, ..launch_of(name, u64::MAX) };
    held.release(ANNOUNCED, &call, lab);
    explicit.after_kernel(ANNOUNCED, &call, &blocks, lab);
}

#[test]
fn the_kernel_that_changes_a_block_is_named_and_declared_writes_last_as_long_as_the_operator() {
    let mut lab = Lab::new(&[512, 512]);
    let mut explicit = Explicit::new(Selection::default());
    let target = Target { name: "weight".to_owned(), address: BASE, size_bytes: 512, device: DEVICE, most_dumps: None };
    let blocks = lab.blocks.clone();
    explicit.add(target, &blocks, &mut lab);
    explicit.declare(&[ByteRange::sized(BASE, 512)]);
    launch(&mut explicit, &mut lab, "First", |lab| lab.write(BASE, 4, 1));
    launch(&mut explicit, &mut lab, "Second", |lab| lab.write(BASE, 4, 2));
    explicit.settle();
    launch(&mut explicit, &mut lab, "Third", |lab| lab.write(BASE, 4, 3));
    let seen: Vec<(&str, bool, u64, bool, bool)> = lab.taken[1..]
        .iter()
        .map(|taken| {
            let detail = &taken.detail;
            let is_declared = !detail.declared.is_empty();
            (&taken.operator[..], taken.after, detail.call, !detail.changed.is_empty(), is_declared)
        })
        .collect();
    let expected = [
        ("First", false, 3, false, true),
        ("First", true, 3, true, true),
        ("Second", false, 3, false, true),
        ("Second", true, 3, true, true),
        ("Third", false, 3, false, false),
        ("Third", true, 3, true, false),
    ];
    assert_eq!(seen, expected);
    let last = &lab.taken[6].detail;
    assert_eq!((&last.since_operator[..], last.since_after), ("Third", false));
    assert_eq!(last.launched_by.as_deref(), Some("aten.chain"));
    assert!(lab.taken.iter().all(|taken| taken.operator != ANNOUNCED));
}

/// Looks come in pairs, so that an odd number ends with one before a kernel, whose name is known behind it.
#[test]
fn a_count_that_ends_before_a_kernel_is_told_with_its_name() {
    let mut lab = Lab::new(&[512]);
    let mut explicit = Explicit::new(Selection::default());
    let most_dumps = Some(3);
    let target = Target { name: "weight".to_owned(), address: BASE, size_bytes: 512, device: DEVICE, most_dumps };
    let blocks = lab.blocks.clone();
    explicit.add(target, &blocks, &mut lab);
    launch(&mut explicit, &mut lab, "First", |_| {});
    launch(&mut explicit, &mut lab, "Second", |_| {});
    assert!(!explicit.is_watching());
    let looks = lab.taken.iter().filter(|taken| taken.detail.note == WatchNote::Look).count();
    let last = lab.taken.last().expect("the end");
    assert_eq!((looks, last.detail.note), (3, WatchNote::CountReached));
    assert_eq!((&last.operator[..], &last.detail.since_operator[..]), ("Second", "Second"));
}

#[test]
fn watching_goes_from_a_kernel_to_a_kernel_and_files_have_their_names() {
    let mut lab = Lab::new(&[512, 512]);
    lab.directory = Some(tempfile::tempdir().expect("a directory"));
    let (start, end) = (Some(OperatorPattern::new("Fill")), Some(OperatorPattern::new("Last")));
    let selection = Selection { start, end, full_content: true, ..Selection::default() };
    let mut explicit = Explicit::new(selection);
    assert!(explicit.may_start_with_a_kernel());
    let fill = format!("Fill_{}_8", "0".repeat(32));
    launch(&mut explicit, &mut lab, &fill, |_| {});
    assert!(!explicit.is_watching(), "the outputs of its operator are not known yet");
    let output = Output { index: 0, address: BASE, size_bytes: 100, device: DEVICE };
    let blocks = lab.blocks.clone();
    explicit.pass(&call("aten.full", &[]), &[output], &blocks, &mut lab);
    assert!(explicit.is_watching());
    launch(&mut explicit, &mut lab, "Mul", |lab| lab.write(BASE, 4, 9));
    launch(&mut explicit, &mut lab, "Last", |_| {});
    assert!(!explicit.is_waiting());
    assert_eq!(lab.taken.last().map(|taken| taken.detail.note), Some(WatchNote::EndReached));
    let directory = lab.directory.as_ref().expect("a directory").path().join("watch_dump");
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .expect("files")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort_unstable();
    let expected = [
        "0_7_Last_3-aten.full_0_after.bin",
        "0_7_Last_3-aten.full_0_before.bin",
        "0_7_Mul_3-aten.full_0_after.bin",
        "0_7_Mul_3-aten.full_0_before.bin",
        "0_7_aten.full_1-aten.full_0_after.bin",
    ];
    assert_eq!(files, expected);
    let told: Vec<&str> = lab.taken.iter().filter_map(|taken| taken.detail.file.as_deref()).collect();
    assert!(told.iter().all(|file| expected.contains(file)), "{told:?}");
}

#[test]
fn a_hunt_leaves_alone_what_the_operator_allocates_meanwhile() {
    let mut lab = Lab::new(&[512, 512]);
    let newest = lab.blocks.newest_generation();
    let mut hunt = Hunt::new(HuntBudget { size_bytes: 1 << 20, time: Duration::from_secs(60) }, None);
    lab.memory.resize(4096, 0);
    lab.blocks.begin(DEVICE, BASE + 2048, 512, true);
    let mut kernel = |lab: &mut Lab, name: &str, work: &dyn Fn(&mut Lab)| {
        let blocks = lab.blocks.clone();
        hunt.before_kernel(&launch_of(ANNOUNCED, newest), &blocks, &mut HeldLooks::default().around(lab));
        work(lab);
        hunt.after_kernel(ANNOUNCED, &launch_of(name, newest), &blocks, lab);
    };
    kernel(&mut lab, "Own", &|lab| lab.write(BASE + 2048, 512, 1));
    assert!(lab.taken.is_empty());
    kernel(&mut lab, "Stomp", &|lab| lab.write(BASE + 512, 8, 1));
    kernel(&mut lab, "Own", &|lab| lab.write(BASE + 2048, 512, 2));
    // The next operator writes that block, which has not been looked at so far.
    let (newest, declared) = (lab.blocks.newest_generation(), [ByteRange::sized(BASE + 2048, 512)]);
    let blocks = lab.blocks.clone();
    let own = |name| OperatorCall { writes: &declared, ..launch_of(name, newest) };
    hunt.before_kernel(&own(ANNOUNCED), &blocks, &mut HeldLooks::default().around(&mut lab));
    lab.write(BASE + 2048, 512, 3);
    hunt.after_kernel(ANNOUNCED, &own("Sigmoid"), &blocks, &mut lab);
    let found: Vec<(&str, u64)> = lab.taken.iter().map(|taken| (&taken.operator[..], taken.address)).collect();
    assert_eq!(found, [("Stomp", BASE + 512)]);
    assert_eq!(lab.taken[0].detail.since_operator, "Stomp");
    let coverage = hunt.coverage();
    assert_eq!((coverage.kernels, coverage.operators, coverage.looks_due, coverage.looks_taken), (4, 0, 18, 18));
}
