//! Owners, fragmentation and out-of-memory failures.

use msmemscope_analysis::decompose::OwnerReport;
use msmemscope_analysis::out_of_memory::OutOfMemoryReport;
use msmemscope_analysis::remedy::Remedy;
use msmemscope_analysis::verdict::{Unusable, Verdict};
use msmemscope_analysis::{OwnerQuestion, Questions};
use msmemscope_event::{AutogradPhase, BlockProperties, Device, Fact, Pool, StackId};
use msmemscope_report as text;
use msmemscope_report::headline::out_of_memory;
use msmemscope_report::verdict::{Reason, reason};
use proptest::prelude::*;

use crate::support::{Dump, Traced};

#[test]
fn owners_at_the_peak_at_a_step_and_at_the_end() {
    let mut dump = Dump::new();
    dump.malloc_with("PTA", 0, 0x1000, 100, ",owner:PTA@model@weight", "");
    for step in 1..=2u64 {
        dump.step_begin();
        dump.malloc_with("PTA", 0, 0x2000, 50 * step, ",owner:PTA@ops@aten", "");
        dump.malloc_with("PTA", 0, 0x3000 * step, 7, "", "");
        if step == 2 {
            dump.free("PTA", 0x2000);
        }
        dump.step_end();
        if step == 1 {
            dump.free("PTA", 0x2000);
        }
    }
    let owners = Some(OwnerQuestion { step: Some(1) });
    let report = dump.ask(&Questions { owners, ..Questions::default() }).owners.unwrap();
    let pool = &report.pools[0];
    let sizes = |owners: &[msmemscope_analysis::decompose::OwnerUse]| -> Vec<(String, u64)> {
        owners.iter().map(|owner| (owner.owner.clone(), owner.bytes)).collect()
    };
    let named = |list: &[(&str, u64)]| list.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect::<Vec<_>>();
    assert_eq!((pool.peak_bytes, pool.peak_step), (214, 2));
    assert_eq!(sizes(&pool.at_peak), named(&[("PTA@model@weight", 100), ("PTA@ops@aten", 100), ("unknown", 14)]));
    assert_eq!(
        sizes(pool.at_step.as_ref().unwrap()),
        named(&[("PTA@model@weight", 100), ("PTA@ops@aten", 50), ("unknown", 7)])
    );
    assert_eq!(sizes(&pool.at_end), named(&[("PTA@model@weight", 100), ("unknown", 14)]));
    let text = text::owners(&report);
    let weight = text.lines().find(|line| line.trim_start().starts_with("weight")).unwrap();
    assert_eq!(weight.split_whitespace().collect::<Vec<_>>(), ["weight", "100", "B", "46.7", "%", "1"]);
}

#[test]
fn labels_that_came_to_nothing_are_told() {
    let report = OwnerReport { step: None, pools: Vec::new(), labels_beyond_the_third: 1, labels_without_block: 2 };
    let text = text::owners(&report);
    assert!(text.contains("1 label was ignored: the block had three others.\n"), "{text}");
    assert!(text.contains("2 labels were ignored: no block was alive at the address.\n"), "{text}");
    let nothing = OwnerReport { labels_beyond_the_third: 0, labels_without_block: 0, ..report };
    assert!(!text::owners(&nothing).contains("label"));
}

fn failures(dump: &Dump) -> OutOfMemoryReport {
    dump.ask(&Questions { out_of_memory: Some(2), ..Questions::default() }).out_of_memory.unwrap()
}

#[test]
fn demand_is_told_with_the_blocks_of_that_moment() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 10 << 20);
    dump.malloc_with("PTA", 0, 0x1000_0000, 9 << 20, ",total:10485760,owner:PTA@model@weight", "/me/m.py(3): init\n");
    dump.malloc_with("PTA", 0, 0x1090_0000, 1 << 20, ",total:10485760", "/me/m.py(9): run\n");
    dump.refused(4 << 20);
    let report = failures(&dump);
    assert_eq!(report.failures, 1);
    let failure = report.decisive().unwrap();
    assert_eq!((failure.verdict, failure.function, failure.recovered), (Verdict::Demand, "halMemAlloc", false));
    assert_eq!((failure.process_bytes, failure.pools[0].idle_bytes()), (10 << 20, 0));
    let largest: Vec<u64> = failure.largest.iter().map(|block| block.size_bytes >> 20).collect();
    assert_eq!(largest, [10, 9]);
    assert_eq!(failure.recent[0].site.line, "/me/m.py:9 run");
    assert_eq!(failure.owners[0].owner, "PTA@model@weight");
    let first = out_of_memory(failure, None);
    let expected = "Out of memory on device 0: 4.0 MiB were asked for. Reason: the job needs more memory than there is; \
                    most, 9.0 MiB, is held by 1 block allocated at /me/m.py:3 init.";
    assert_eq!(first, expected);
    let text = text::out_of_memory(&report);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_request_larger_than_the_card_is_told_as_such() {
    let ask = |requested: u64, stack: &str| {
        let mut dump = Dump::new();
        dump.system_with("START_TRACE", "free:67108864,total:1073741824");
        dump.malloc("HAL", 0x1000_0000, 10 << 20);
        dump.malloc_with("PTA", 0, 0x1000_0000, 9 << 20, ",total:10485760,owner:PTA@model@optimizer_state", "");
        dump.refused_at(requested, stack);
        failures(&dump).decisive().unwrap().clone()
    };
    let failure = ask((1 << 30) + 1, "/me/m.py(7): make\n");
    assert_eq!(failure.verdict, Verdict::Demand);
    let Reason { explanation, advice } = reason(&failure);
    assert!(advice.len() == 1 && advice[0].contains("asked for at /me/m.py:7 make: 1.0 GiB at once"));
    assert!(!explanation.iter().chain(&advice).any(|line| line.contains("owner") || line.contains("hard")));
    assert!(reason(&ask(1 << 40, "")).advice[0].starts_with("Look at the size that is asked for: 1.0 TiB"));
    assert!(reason(&ask(1 << 30, "")).advice[0].starts_with("Shard gradients"), "an empty card would have done");
}

#[test]
fn fragmentation_is_memory_held_but_not_usable() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 10 << 20);
    for piece in 0..10u64 {
        dump.malloc_with("PTA", 0, 0x1000_0000 + (piece << 20), 1 << 20, ",total:10485760", "");
    }
    for piece in (0..10u64).step_by(2) {
        dump.free("PTA", 0x1000_0000 + (piece << 20));
    }
    dump.refused(2 << 20);
    let report = failures(&dump);
    let failure = report.decisive().unwrap();
    assert_eq!(failure.verdict, Verdict::Fragmentation);
    let pool = &failure.pools[0];
    assert_eq!((pool.idle_bytes(), pool.gaps.largest_gap_bytes, pool.gaps.gaps), (5 << 20, 1 << 20, 5));
    assert!(reason(failure).advice[0].contains("expandable_segments"));
}

#[test]
fn other_processes_on_the_card_are_told_apart() {
    let mut dump = Dump::new();
    dump.system_with("START_TRACE", "free:67108864,total:68719476736");
    dump.malloc_with(
        "HAL",
        0,
        0x1000_0000,
        1 << 30,
        ",used:1073741824,process_used:1073741824,device_used:68652367872",
        "",
    );
    dump.refused(1 << 30);
    let report = failures(&dump);
    assert_eq!(report.decisive().unwrap().verdict, Verdict::OtherProcesses);
}

#[test]
fn a_leak_that_would_have_been_enough_is_the_reason() {
    let mut dump = Dump::new();
    for step in 1..=8u64 {
        dump.step_begin();
        dump.malloc_at(0x100_0000 * step, 4 << 20, "/me/train.py(8): step\n");
        dump.step_end();
    }
    dump.refused(8 << 20);
    let report = failures(&dump);
    let failure = report.decisive().unwrap();
    assert_eq!((failure.verdict, failure.leaked_bytes), (Verdict::Leak, 24 << 20));
}

#[test]
fn a_history_that_is_bounded_is_no_leak_when_memory_runs_out() {
    let mut dump = Dump::new();
    for step in 1..=12u64 {
        dump.step_begin();
        // The last four are kept.
        if step > 4 {
            dump.free("PTA", 0x100_0000 * (step - 4));
        }
        dump.malloc_at(0x100_0000 * step, 4 << 20, "/me/train.py(8): remember\n");
        dump.step_end();
    }
    dump.refused(8 << 20);
    let report = failures(&dump);
    let failure = report.decisive().unwrap();
    assert_ne!(failure.verdict, Verdict::Leak);
    assert_eq!(failure.leaked_bytes, 0);
}

#[test]
fn the_last_of_several_tries_tells_the_reason() {
    let mut dump = Dump::new();
    // The allocator holds a free segment, gives it back after the first failure, and fails again.
    dump.malloc("HAL", 0x1000_0000, 4 << 20).malloc("HAL", 0x2000_0000, 6 << 20);
    dump.malloc_with("PTA", 0, 0x2000_0000, 6 << 20, ",total:10485760", "");
    dump.refused(4 << 20);
    dump.free("HAL", 0x1000_0000);
    dump.malloc_with("PTA", 0, 0x2500_0000, 512, ",total:6291456", "");
    dump.refused(4 << 20);
    let report = failures(&dump);
    assert_eq!((report.failures, report.details.len()), (2, 1));
    assert_eq!(report.details[0].verdict, Verdict::Demand);
    let answers = dump.ask(&Questions { out_of_memory: Some(2), ..Questions::default() });
    let kept = &answers.out_of_memory.unwrap().details[0];
    let listed = answers.notes.alive_at_failure(kept.timestamp_ns, kept.thread_id);
    assert_eq!(listed.len(), 4, "two lists of two blocks");
    assert_eq!(answers.notes.alive_at_failure(kept.timestamp_ns - 10, kept.thread_id), []);
}

#[test]
fn a_failure_that_was_recovered_from_is_told_as_such() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 10 << 20).refused(4 << 20).free("HAL", 0x1000_0000);
    dump.malloc("HAL", 0x2000_0000, 4 << 20);
    let report = failures(&dump);
    assert!(report.decisive().unwrap().recovered);
    let text = text::out_of_memory(&report);
    assert!(text.starts_with("Note: the driver refused 4.0 MiB on device 0, but a later attempt got its"), "{text}");
    assert!(!text.contains("OUT OF MEMORY") && !text.contains("Reason") && !text.contains("What to do"), "{text}");
    assert_eq!(text::out_of_memory(&OutOfMemoryReport::default()), "The driver never ran out of memory.\n");
}

#[test]
fn segments_that_were_entirely_free_are_said() {
    let mut dump = Dump::new();
    for segment in 0..3u64 {
        dump.malloc("HAL", 0x1000_0000 * (segment + 1), 20 << 20);
        dump.malloc_with("PTA", 0, 0x1000_0000 * (segment + 1), 20 << 20, ",total:62914560", "");
    }
    dump.free("PTA", 0x1000_0000).free("PTA", 0x2000_0000).refused(30 << 20);
    let gaps = failures(&dump).decisive().unwrap().pools[0].gaps;
    assert_eq!((gaps.free_segments, gaps.free_segment_bytes), (2, 40 << 20));
    dump.free("HAL", 0x1000_0000).free("HAL", 0x2000_0000).malloc("HAL", 0x1000_0000, 30 << 20);
    let text = text::out_of_memory(&failures(&dump)).replace("\n ", "");
    assert!(text.contains("The framework held 2 segments that were entirely free (40.0 MiB)"), "{text}");
}

#[test]
fn a_line_that_keeps_more_and_more_is_named_though_there_are_no_steps() {
    let job = |keeps: bool| {
        let mut dump = Dump::new();
        dump.system_with("START_TRACE", "free:41943040,total:41943040");
        dump.malloc("HAL", 0x1000_0000, 20 << 20);
        for iteration in 0..40u64 {
            if iteration % 4 == 0 {
                dump.malloc("HAL", 0x2000_0000 + (iteration << 21), 2 << 20);
            }
            dump.malloc_with("PTA", 0, 0x1000_0000, 4 << 20, ",total:41943040", "/me/t.py(4): forward\n");
            let block = 0x2000_0000 + ((iteration / 4) << 23) + ((iteration % 4) << 19);
            dump.malloc_with("PTA", 0, block, 1 << 19, ",total:41943040", "/me/t.py(9): train\n");
            dump.free("PTA", 0x1000_0000);
            if !keeps {
                dump.free("PTA", block);
            }
        }
        dump.refused(2 << 20);
        failures(&dump)
    };
    let report = job(true);
    let failure = report.decisive().unwrap();
    assert_eq!(failure.verdict, Verdict::Growth, "{:?}", reason(failure));
    let growing = failure.growing.as_ref().unwrap();
    assert_eq!((growing.blocks, growing.block_bytes, growing.bytes), (40, 1 << 19, 20 << 20));
    let text = text::out_of_memory(&report).replace("\n ", "");
    let first = out_of_memory(failure, None);
    assert!(first.ends_with("; 20.0 MiB are held by 40 blocks allocated at /me/t.py:9 train."), "{first}");
    assert!(text.contains("40 blocks of 512 KiB come from one place, /me/t.py:9 train,"), "{text}");
    assert!(text.contains("a segment for blocks of up to 1.0 MiB"), "{text}");
    assert_eq!(job(false).decisive().unwrap().growing, None, "blocks that end again are no growth");
}

#[test]
fn a_line_that_holds_less_than_the_gaps_beside_it_is_not_to_blame() {
    let job = |pages_mebibytes: u64| {
        let mut dump = Dump::new();
        dump.system_with("START_TRACE", "free:838860800,total:838860800");
        let stride = (pages_mebibytes + 3) << 20;
        let total = format!(",total:{}", 60 * stride);
        let page = |number: u64| 0x1_0000_0000 + number * stride;
        for number in 0..60 {
            dump.malloc("HAL", page(number), stride);
            dump.malloc_with("PTA", 0, page(number), pages_mebibytes << 20, &total, "/me/t.py(4): page\n");
            let table = page(number) + (pages_mebibytes << 20);
            dump.malloc_with("PTA", 0, table, 3 << 20, &total, "/me/t.py(5): table\n");
        }
        for number in 0..60 {
            dump.free("PTA", page(number));
        }
        let free_mebibytes = 800 - 60 * (pages_mebibytes + 3);
        dump.refused((free_mebibytes + 100) << 20);
        failures(&dump).decisive().unwrap().verdict
    };
    assert_eq!(job(6), Verdict::Fragmentation, "gaps of 360 MiB, tables of 180 MiB");
    assert_eq!(job(1), Verdict::Growth, "gaps of 60 MiB, tables of 180 MiB");
}

#[test]
fn gaps_for_small_and_for_large_blocks_are_told_apart() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 2 << 20).malloc("HAL", 0x2000_0000, 20 << 20);
    dump.malloc_with("PTA", 0, 0x1000_0000, 1 << 20, ",total:23068672", "/me/a.py(1): a\n");
    dump.malloc_with("PTA", 0, 0x2000_0000, 4 << 20, ",total:23068672", "/me/a.py(2): b\n");
    dump.refused(2 << 20);
    let report = failures(&dump);
    let failure = report.decisive().unwrap();
    let gaps = failure.pools[0].gaps;
    assert_eq!((gaps.small.gap_bytes, gaps.large.largest_gap_bytes), (1 << 20, 16 << 20));
    let said = reason(failure).explanation.join(" ");
    assert!(said.contains("In segments for small blocks 1.0 MiB of it are unused, the largest gap has 1.0 MiB."));
    assert!(said.contains("16.0 MiB are unused in segments for larger blocks, where small ones never go."), "{said}");
    let text = text::out_of_memory(&report);
    assert!(text.contains("  for blocks up to 1 MiB"), "{text}");
}

/// A card of 400 MiB whose free 100 MiB are too few: 60 segments for small blocks have gaps, and a large one has one.
fn gaps_of_two_classes(large_gap_mebibytes: u64) -> OutOfMemoryReport {
    let mut dump = Dump::new();
    dump.system_with("START_TRACE", "free:419430400,total:419430400");
    let total = format!(",total:{}", 300 << 20);
    for segment in 0..60u64 {
        let start = 0x1000_0000 + (segment << 21);
        dump.malloc("HAL", start, 2 << 20);
        dump.malloc_with("PTA", 0, start, 1 << 19, &total, "/me/t.py(4): table\n");
    }
    dump.malloc("HAL", 0x8000_0000, 180 << 20);
    let weights = (180 - large_gap_mebibytes) << 20;
    dump.malloc_with("PTA", 0, 0x8000_0000, weights, &total, "/me/t.py(5): weights\n");
    dump.refused_at(150 << 20, "/me/t.py(9): main\n");
    failures(&dump)
}

#[test]
fn gaps_between_small_blocks_are_no_room_for_a_large_one() {
    let report = gaps_of_two_classes(20);
    let failure = report.decisive().unwrap();
    assert_eq!((failure.verdict, failure.unusable()), (Verdict::Fragmentation, Unusable::InOtherClass));
    let Reason { explanation, advice } = reason(failure);
    let said = explanation.join(" ");
    let gaps = "90.0 MiB lie in gaps of segments for small blocks (held by blocks allocated at /me/t.py:4 table), where a \
                larger one cannot go.";
    assert!(said.contains(gaps) && !said.contains("together"), "{said}");
    assert!(advice[0].starts_with("Free the blocks allocated at /me/t.py:4 table before"), "{advice:?}");
    assert!(!advice.iter().any(|line| line.contains("expandable_segments")), "{advice:?}");
    let first = out_of_memory(failure, None);
    assert!(first.contains("Reason: fragmentation: only small blocks find room; most, "), "{first}");
}

#[test]
fn gaps_of_the_right_class_would_do_together() {
    let report = gaps_of_two_classes(60);
    let failure = report.decisive().unwrap();
    assert_eq!((failure.verdict, failure.unusable()), (Verdict::Fragmentation, Unusable::InPieces));
    let Reason { explanation, advice } = reason(failure);
    assert!(explanation.join(" ").ends_with("it would have fitted if the gaps were together."));
    assert!(advice[0].contains("expandable_segments"), "{advice:?}");
}

#[test]
fn a_gap_that_is_large_enough_belongs_to_somebody_else() {
    let report = gaps_of_two_classes(160);
    let failure = report.decisive().unwrap();
    assert_eq!((failure.verdict, failure.unusable()), (Verdict::Fragmentation, Unusable::Reserved));
    let Reason { explanation, advice } = reason(failure);
    let said = explanation.join(" ");
    assert!(
        said.contains("Its largest gap has 160 MiB, which would be enough, but is unused on another stream"),
        "{said}"
    );
    assert!(!said.contains("together") && !said.contains("fragmentation"), "{said}");
    assert!(advice[0].starts_with("Allocate it on the stream"), "{advice:?}");
    let first = out_of_memory(failure, None);
    assert!(first.contains("Reason: the memory that is unused belongs to another stream;"), "{first}");
}

#[test]
fn advice_does_not_contradict_what_was_computed() {
    let failure = gaps_of_two_classes(60).decisive().unwrap().clone();
    let with = |settings: Option<&str>| {
        let settings = settings.map(str::to_owned);
        let remedy = Some(Remedy { settings, peak_reserved_bytes: 300 << 20, card_bytes: 400 << 20, tried: 11 });
        let mut failure = failure.clone();
        failure.remedy = remedy;
        reason(&failure).advice
    };
    let none = with(None);
    assert!(!none.iter().any(|line| line.contains("expandable_segments")), "{none:?}");
    assert!(none.iter().any(|line| line.contains("no setting helps: with none of 11 settings")), "{none:?}");
    let some = with(Some("max_split_size_mb:64"));
    assert!(
        some[0].contains("with PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64 this request would have fitted"),
        "{some:?}"
    );
    assert!(!some.iter().any(|line| line.contains("expandable_segments")), "{some:?}");
}

#[test]
fn what_is_made_between_modules_is_no_activation() {
    let verdicts = |in_module: bool| {
        let mut trace = Traced::new();
        let (driver, pool) = (Pool::Hal, Pool::PytorchCaching);
        let [driver, pool] = [driver, pool].map(|pool| BlockProperties::framework(pool, Device::Npu(0)));
        let name = trace.string("GPT");
        trace.record(Fact::Allocation { properties: driver, address: 0x1000_0000, size_bytes: 64 << 20 });
        trace.record(Fact::Autograd { device: Device::Npu(0), phase: AutogradPhase::Forward });
        trace.record(Fact::ModuleBegin { name });
        if !in_module {
            trace.record(Fact::ModuleEnd { name });
        }
        for block in 0..4u64 {
            let address = 0x1000_0000 + (block << 24);
            trace.record(Fact::Allocation { properties: pool, address, size_bytes: 16 << 20 });
        }
        trace.record(Fact::AllocationFailed { properties: driver, size_bytes: 1 << 30, flag: 0, error: 6 });
        let report = trace.ask(&Questions { out_of_memory: Some(2), ..Questions::default() }).out_of_memory.unwrap();
        let failure = report.decisive().unwrap();
        (out_of_memory(failure, None), reason(failure).explanation.join(" "))
    };
    let (first, said) = verdicts(true);
    assert!(
        first.starts_with("Out of memory on device 0 (forward, in GPT): ") && said.contains("activations"),
        "{said}"
    );
    let (first, said) = verdicts(false);
    assert!(first.starts_with("Out of memory on device 0: ") && !said.contains("activations"), "{first} {said}");
}

#[test]
fn the_free_memory_of_the_card_counts() {
    let job = |requested: u64| {
        let mut dump = Dump::new();
        dump.system_with("START_TRACE", "free:536870912,total:536870912");
        dump.malloc("HAL", 0x1000_0000, 198 << 20);
        dump.malloc_with("PTA", 0, 0x1000_0000, 198 << 20, ",total:207618048", "");
        dump.free("PTA", 0x1000_0000).refused(requested);
        failures(&dump).decisive().unwrap().clone()
    };
    let failure = job(402 << 20);
    assert_eq!((failure.free_bytes, failure.verdict), (Some(314 << 20), Verdict::Fragmentation));
    let said = reason(&failure).explanation.join(" ");
    assert!(said.contains("1 segment was entirely free (198 MiB)") && !said.contains("enough"), "{said}");
    assert_eq!(job(513 << 20).verdict, Verdict::Demand);
    let failure = job(300 << 20);
    assert_eq!(failure.verdict, Verdict::Driver, "{:?}", reason(&failure));
    assert!(
        reason(&failure).explanation.iter().any(|line| line.contains("314 MiB that were free should have been enough"))
    );
}

#[test]
fn frames_that_could_not_be_found_are_no_frames() {
    let mut trace = Traced::new();
    let frames: Vec<u8> = [0x40_1234u64, 0].iter().flat_map(|address| address.to_le_bytes()).collect();
    let id = StackId(1);
    trace.record(Fact::DefineNativeStack { id, frames: &frames });
    let properties = BlockProperties::framework(Pool::Hal, Device::Npu(0));
    trace.record_with_stack(Fact::AllocationFailed { properties, size_bytes: 1 << 30, flag: 0, error: 6 }, id);
    let report = trace.ask(&Questions { out_of_memory: Some(2), ..Questions::default() }).out_of_memory.unwrap();
    let functions: Vec<&str> = report.details[0].site.native.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(functions, ["0x401234"]);
}

#[test]
fn fragmentation_over_steps() {
    let mut dump = Dump::new();
    dump.malloc("HAL", 0x1000_0000, 10 << 20);
    for step in 1..=3u64 {
        dump.step_begin();
        for piece in 0..8u64 {
            dump.malloc_with("PTA", 0, 0x1000_0000 + (piece << 20), 1 << 20, ",total:10485760", "");
        }
        for piece in 0..2 * step {
            dump.free("PTA", 0x1000_0000 + (piece << 20));
        }
        dump.step_end();
        for piece in 2 * step..8 {
            dump.free("PTA", 0x1000_0000 + (piece << 20));
        }
    }
    let report = dump.ask(&Questions { fragmentation: true, ..Questions::default() }).fragmentation.unwrap();
    let pool = &report.pools[0];
    let used: Vec<u64> = pool.samples.iter().map(|sample| sample.used_bytes >> 20).collect();
    assert_eq!(used, [6, 4, 2]);
    let gaps = pool.samples[1].gaps.unwrap();
    assert_eq!((gaps.gap_bytes >> 20, gaps.largest_gap_bytes >> 20, gaps.segments), (6, 4, 1));
    assert_eq!((pool.at_peak_used.used_bytes >> 20, pool.at_peak_reserved.reserved_bytes >> 20), (8, 10));
    let at_peak = pool.at_peak_reserved.gaps.unwrap();
    assert_eq!(at_peak.largest_gap_bytes >> 20, 9, "one block of ten is there when the pool first holds so much");
    assert_eq!((pool.at_end.used_bytes, pool.most_idle.idle_bytes() >> 20), (0, 10));
    let text = text::fragmentation(&report);
    assert!(text.replace("\n ", "").contains("overhead of the pool"), "{text}");
    let end = text.lines().find(|line| line.trim_start().starts_with("end")).unwrap();
    assert!(end.ends_with("100.0 %     all free"), "without blocks there are no gaps between them: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn gaps_of_unknown_segments_are_not_told() {
    let mut dump = Dump::new();
    dump.malloc_with("PTA", 0, 0x1000_0000, 1 << 20, ",total:2097152", "");
    let report = dump.ask(&Questions { fragmentation: true, ..Questions::default() }).fragmentation.unwrap();
    let text = text::fragmentation(&report);
    assert!(text.lines().any(|line| line.ends_with("50.0 %      unknown")), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two segments of sixteen pieces each, looked at piece by piece.
    #[test]
    fn gaps_are_the_runs_of_free_pieces(taken in prop::collection::vec(any::<bool>(), 32)) {
        const PIECE: u64 = 1 << 20;
        let mut dump = Dump::new();
        let (mut gaps, mut segments) = (Vec::new(), 0);
        for (segment, pieces) in [0x1000_0000u64, 0x9000_0000].into_iter().zip(taken.chunks(16)) {
            dump.malloc("HAL", segment, 16 * PIECE);
            for (index, _) in pieces.iter().enumerate().filter(|(_, taken)| **taken) {
                dump.malloc_with("PTA", 0, segment + index as u64 * PIECE, PIECE, ",total:33554432", "");
            }
            if pieces.contains(&true) {
                segments += 1;
                gaps.extend(pieces.split(|taken| *taken).map(|free| free.len() as u64 * PIECE).filter(|gap| *gap > 0));
            }
        }
        let report = dump.ask(&Questions { fragmentation: true, ..Questions::default() }).fragmentation.unwrap();
        let found = report.pools.first().map(|pool| pool.at_end.gaps.unwrap()).unwrap_or_default();
        prop_assert_eq!(found.segments, segments);
        prop_assert_eq!((found.gaps, found.gap_bytes), (gaps.len() as u64, gaps.iter().sum::<u64>()));
        prop_assert_eq!(found.largest_gap_bytes, gaps.into_iter().max().unwrap_or(0));
    }
}
