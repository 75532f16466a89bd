//! What kind of mistake a finding is: the cause of a leak, and what stands though it is no leak.

use msmemscope_analysis::{Answers, Questions};
use msmemscope_report::answers::render;
use msmemscope_report::causes::{Cause, CauseKind, causes};
use msmemscope_report::leaks::Style;

use crate::support::Dump;

const MODULE: &str = "/usr/lib/python3/site-packages/torch/nn/modules/module.py(1800): inner\n";
const ADAM: &str = "/usr/lib/python3/site-packages/torch/optim/adam.py(180): Adam._init_group\n";

fn ask(dump: &Dump) -> Answers {
    dump.ask(&Questions { leaks: true, standing: true, ..Questions::default() })
}

fn said(dump: &Dump) -> String {
    render(&ask(dump), false, Style::Full).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Eight steps, each of which does the same with its number.
fn steps(mut work: impl FnMut(&mut Dump, u64)) -> Dump {
    let mut dump = Dump::new();
    dump.malloc_with("PTA", 0, 0x10, 4096, ",owner:PTA@model@weight", "/me/model.py(3): init\n");
    dump.malloc_with("PTA", 0, 0x20, 4096, ",owner:PTA@model@weight", "/me/model.py(3): init\n");
    for step in 1..=8 {
        dump.step_begin();
        work(&mut dump, step);
        dump.step_end();
    }
    dump
}

#[test]
fn what_a_hook_keeps_is_told_from_what_a_model_keeps() {
    for (function, is_hook) in [("Probe.save", true), ("main.<locals>.keep", true), ("Block.forward", false)] {
        let stack = format!("/me/train.py(12): {function}\n{MODULE}/me/train.py(40): main\n");
        let text = said(&steps(|dump, step| {
            dump.malloc_at(0x1000 * step, 2048, &stack);
        }));
        assert!(text.starts_with("Leak: "), "{text}");
        assert_eq!(text.contains("a hook keeps what it sees"), is_hook, "{text}");
        assert_eq!(text.contains("handle.remove()"), is_hook, "{text}");
    }
}

#[test]
fn optimizers_that_are_made_anew_are_the_cause_of_their_states() {
    let stack = format!("{ADAM}/me/train.py(20): main\n");
    let text = said(&steps(|dump, step| {
        dump.malloc_with("PTA", 0, 0x1000 * step, 2048, ",owner:PTA@model@optimizer_state", &stack);
    }));
    assert!(text.starts_with("Leak: optimizers are made anew, and the states of the old ones kept: 2.0 KiB"), "{text}");
    assert!(text.contains("Make the optimizer once, before the loop."), "{text}");
    assert!(!text.contains("Waste"), "told once: {text}");
}

#[test]
fn driver_memory_is_summed_up_by_its_module() {
    let text = said(&steps(|dump, step| {
        for line in [12, 14] {
            let stack = format!("/me/train.py({line}): step\n");
            dump.malloc_with("HAL", 0, 0x10_0000 * step + line, 1024, ",owner:CANN@HCCL", &stack);
        }
    }));
    let expected = "Leak: driver memory of HCCL, outside of all pools: 2.0 KiB more with every step, 12.0 KiB by now, held \
                    by 12 blocks of steps 2-7; most is allocated at /me/train.py:1";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("destroy_process_group"), "{text}");
}

#[test]
fn a_tensor_that_is_joined_with_its_earlier_self_swells() {
    let swell = |bounded: bool| {
        steps(|dump, step| {
            let size = if bounded { 3 } else { step } * 4096;
            dump.malloc_at(0x1000 * step, size, "/me/generate.py(7): attend\n");
            if step > 1 {
                dump.free("PTA", 0x1000 * (step - 1));
            }
        })
    };
    let report = ask(&swell(false)).standing.expect("asked");
    assert_eq!((report.swelling.len(), report.swelling[0].bytes_per_step), (1, 4096));
    assert_eq!((report.swelling[0].first, report.swelling[0].last), ((2, 8192), (8, 32768)));
    let text = said(&swell(false));
    let expected = "Growth: a tensor becomes larger with every step, 4.0 KiB each time, from 8.0 KiB in step 2 to 32.0 KiB in \
                    step 8, allocated at /me/generate.py:7 attend.";
    assert!(text.starts_with(expected) && text.contains("cache of fixed size"), "{text}");
    assert!(!text.contains("No leaks found"), "{text}");
    assert!(said(&swell(true)).starts_with("No leaks found"), "{}", said(&swell(true)));
}

#[test]
fn a_tensor_that_becomes_larger_need_not_be_joined_with_anything() {
    let text = said(&steps(|dump, step| {
        dump.begin("torch._ops.aten._to_copy.default");
        dump.malloc_at(0x1000 * step, step * 4096, "/me/train.py(7): main\n");
        dump.end("torch._ops.aten._to_copy.default");
        if step > 1 {
            dump.free("PTA", 0x1000 * (step - 1));
        }
    }));
    assert!(text.starts_with("Growth: a tensor becomes larger with every step, 4.0 KiB each time"), "{text}");
    assert!(text.contains("bring them to fixed sizes (padding)") && !text.contains("joined"), "{text}");
}

#[test]
fn what_shrinks_again_does_not_swell() {
    let text = said(&steps(|dump, step| {
        dump.malloc_at(0x1000 * step, (step % 4 + 1) * 4096, "/me/generate.py(7): attend\n");
        if step > 1 {
            dump.free("PTA", 0x1000 * (step - 1));
        }
    }));
    assert!(text.starts_with("No leaks found"), "{text}");
}

#[test]
fn a_workspace_swells_whoever_asks_for_it() {
    let workspace = |bytes_of_step: fn(u64) -> u64| {
        said(&steps(|dump, step| {
            let stack = format!("/me/train.py({step}): step\n");
            dump.malloc_with("PTA_WORKSPACE", 0, 0x100_0000 * step, bytes_of_step(step), "", &stack);
            if step > 1 {
                dump.free("PTA_WORKSPACE", 0x100_0000 * (step - 1));
            }
        }))
    };
    let text = workspace(|step| 8192 * step);
    assert!(
        text.starts_with("Growth: the workspace of operators (scratch memory) becomes larger and larger, 8.0 KiB"),
        "{text}"
    );
    assert!(text.contains("/me/train.py:8 step") && text.contains("shapes that grow"), "{text}");
    let (fixed, grown_once) = (workspace(|_| 8192), workspace(|step| if step < 4 { 8192 } else { 32_768 }));
    assert!(fixed.starts_with("No leaks found") && grown_once.starts_with("No leaks found"), "{fixed}\n{grown_once}");
    let by_stairs = workspace(|step| 8192 * (step * 3 / 4 + 1));
    assert!(by_stairs.starts_with("Growth: the workspace of operators"), "{by_stairs}");
    let up_to_the_largest = workspace(|step| 8192 * step.min(5));
    assert!(up_to_the_largest.starts_with("No leaks found"), "operands of many sizes: {up_to_the_largest}");
}

#[test]
fn a_workspace_swells_though_it_is_in_use_for_a_moment_only() {
    let workspace = |bytes_of_step: fn(u64) -> u64| {
        said(&steps(|dump, step| {
            for operator in 1..=2 {
                let size = bytes_of_step(step) / operator;
                dump.malloc_with("PTA_WORKSPACE", 0, 0x100_0000, size, "", "/me/train.py(8): step\n");
                dump.free("PTA_WORKSPACE", 0x100_0000);
            }
        }))
    };
    let text = workspace(|step| 8192 * step);
    assert!(
        text.starts_with("Growth: the workspace of operators (scratch memory) becomes larger and larger, 8.0 KiB"),
        "{text}"
    );
    assert!(workspace(|_| 8192).starts_with("No leaks found"));
}

/// States for two weights, made by the steps of optimizers at these lines.
fn states(lines: &[u64]) -> Dump {
    steps(|dump, step| {
        if step == 1 {
            for (index, line) in lines.iter().enumerate() {
                let stack = format!("{ADAM}/me/train.py({line}): main\n");
                for weight in 0..2 {
                    let address = 0x1000 * (10 * index as u64 + weight + 1);
                    dump.malloc_with("PTA", 0, address, 1024, ",owner:PTA@model@optimizer_state", &stack);
                }
            }
        }
    })
}

#[test]
fn states_of_two_optimizers_for_the_same_weights_are_too_many() {
    let text = said(&states(&[20, 22]));
    let expected = "Waste: optimizer states exist twice, 2.0 KiB of 4.0 KiB too many, made at /me/train.py:20 main in step 1 \
                    and at /me/train.py:22 main in step 1.";
    assert!(text.starts_with(expected) && text.contains("Give every parameter to one optimizer only."), "{text}");
    assert!(said(&states(&[20])).starts_with("No leaks found"), "one optimizer: {}", said(&states(&[20])));
}

#[test]
fn two_kinds_of_states_are_fine_whoever_looks_on() {
    let dump = steps(|dump, step| {
        for (kind, line) in [178, 182].into_iter().enumerate().filter(|_| step == 1) {
            let stack = format!(
                "/lib/site-packages/torch/_ops.py(841): __call__\n\
                 /lib/site-packages/torch/optim/adam.py({line}): _init_group\n/me/train.py(20): main\n"
            );
            for weight in 0..2 {
                let address = 0x1000 * (10 * kind as u64 + weight + 1);
                dump.malloc_with("PTA", 0, address, 1024, ",owner:PTA@model@optimizer_state", &stack);
            }
        }
    });
    assert!(said(&dump).starts_with("No leaks found"), "{}", said(&dump));
}

#[test]
fn optimizers_of_different_weights_are_fine() {
    let dump = steps(|dump, step| {
        for line in [20, 22].into_iter().filter(|_| step == 1) {
            let stack = format!("{ADAM}/me/train.py({line}): main\n");
            dump.malloc_with("PTA", 0, 0x1000 * line, 1024, ",owner:PTA@model@optimizer_state", &stack);
        }
    });
    assert!(said(&dump).starts_with("No leaks found"), "{}", said(&dump));
}

const MEBIBYTE: u64 = 1 << 20;

/// Twenty segments of two blocks each, of which one may go, before a block is asked for that needs two of their gaps.
fn segments(segment_bytes: u64, block_bytes: u64, request_bytes: u64, keeps_one_of_two: bool) -> Dump {
    steps(|dump, step| {
        if step != 3 {
            return;
        }
        let mut total = 0;
        for segment in 1..=20 {
            let start = 0x1_0000_0000 * segment;
            total += segment_bytes;
            let attributes = format!(",total:{total}");
            dump.malloc("HAL", start, segment_bytes);
            dump.malloc_with("PTA", 0, start, block_bytes, &attributes, "/me/load.py(7): table\n");
            dump.malloc_with("PTA", 0, start + block_bytes, block_bytes, &attributes, "/me/load.py(9): scratch\n");
        }
        for segment in 1..=20 {
            dump.free("PTA", 0x1_0000_0000 * segment + block_bytes);
            if !keeps_one_of_two {
                dump.free("PTA", 0x1_0000_0000 * segment);
            }
        }
        let new_bytes = request_bytes.max(segment_bytes);
        dump.malloc("HAL", 0x20_0000_0000, new_bytes);
        let attributes = format!(",total:{}", total + new_bytes);
        dump.malloc_with("PTA", 0, 0x20_0000_0000, request_bytes, &attributes, "/me/train.py(20): main\n");
    })
}

#[test]
fn gaps_that_are_too_small_are_told_with_what_lies_between_them() {
    let text = said(&segments(20 * MEBIBYTE, 10 * MEBIBYTE, 40 * MEBIBYTE, true));
    let expected = "Waste: fragmentation of blocks over 1.0 MiB: 200 MiB of 400 MiB that the pool held lay in 20 gaps of at \
                    most 10.0 MiB, too small for the 40.0 MiB asked for at /me/train.py:20 main in step 3. They lie between \
                    20 blocks allocated at /me/load.py:7 table.";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("Set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"), "{text}");
}

#[test]
fn small_blocks_have_gaps_of_their_own() {
    let mut dump = segments(2 * MEBIBYTE, MEBIBYTE, MEBIBYTE, true);
    assert!(said(&dump).starts_with("No leaks found"), "a gap had room, or there are too few: {}", said(&dump));
    dump = segments(20 * MEBIBYTE, 10 * MEBIBYTE, MEBIBYTE, true);
    assert!(said(&dump).starts_with("No leaks found"), "small blocks never go into large segments: {}", said(&dump));
}

#[test]
fn segments_that_are_free_are_pieces_too() {
    let text = said(&segments(20 * MEBIBYTE, 10 * MEBIBYTE, 40 * MEBIBYTE, false));
    assert!(text.contains("400 MiB of 400 MiB that the pool held lay in 20 gaps of at most 20.0 MiB"), "{text}");
    assert!(!text.contains("They lie between") && text.contains("a few fixed sizes"), "{text}");
}

#[test]
fn gaps_that_have_room_or_would_not_be_enough_are_no_waste() {
    // A gap that has room and is not taken is another stream's.
    let text = said(&segments(20 * MEBIBYTE, 10 * MEBIBYTE, 10 * MEBIBYTE, true));
    assert!(text.starts_with("No leaks found"), "{text}");
    let text = said(&segments(20 * MEBIBYTE, 10 * MEBIBYTE, 300 * MEBIBYTE, true));
    assert!(text.starts_with("No leaks found"), "{text}");
}

/// Three lines of a model whose graph is kept with every step.
fn keep_graph(dump: &mut Dump, step: u64) {
    for line in 1..=3 {
        let stack = format!("/me/model.py(1{line}): Block.forward\n{MODULE}/me/train.py(40): main\n");
        dump.malloc_with("PTA", 0, 0x10_0000 * step + line * 0x1000, 2048, ",owner:PTA@model@activation", &stack);
    }
}

#[test]
fn one_cause_is_told_once_and_another_one_beside_it() {
    let dump = steps(|dump, step| {
        keep_graph(dump, step);
        dump.malloc_at(0x1000_0000 + step * 0x1000, 1024, "/me/train.py(50): remember\n");
    });
    let answers = ask(&dump);
    assert_eq!(answers.leaks.as_ref().expect("asked").leaks.len(), 4);
    let [graphs, other]: [Cause; 2] = causes(&answers).try_into().expect("two causes");
    assert!(graphs.sentence.starts_with("Leak: the graphs made at /me/train.py:40 main"), "{}", graphs.sentence);
    assert_eq!((graphs.kind, graphs.bytes, graphs.count), (CauseKind::Leak, 3 * 6 * 2048, Some(18)));
    assert_eq!(graphs.frame.as_ref().map(|frame| frame.line), Some(40));
    assert!(!graphs.is_of_one_line && graphs.advice[0].contains("loss.item()"), "{graphs:?}");
    assert!(other.sentence.contains("/me/train.py:50 remember") && other.is_of_one_line, "{}", other.sentence);
    assert_eq!((other.bytes, other.count, other.line.as_deref()), (6144, Some(6), Some("/me/train.py:50 remember")));
}

#[test]
fn causes_have_the_sentences_that_reports_begin_with() {
    let leak_in_two_steps = steps(|dump, step| {
        if step == 3 || step == 4 {
            dump.malloc_at(0x1000 * step, 2048, "/me/train.py(12): keep\n");
        }
    });
    let swelling = steps(|dump, step| {
        dump.malloc_at(0x1000 * step, step * 4096, "/me/generate.py(7): attend\n");
        if step > 1 {
            dump.free("PTA", 0x1000 * (step - 1));
        }
    });
    let hooks = steps(|dump, step| {
        for line in [12, 14] {
            let stack = format!("/me/train.py({line}): Probe.save\n{MODULE}/me/train.py(40): main\n");
            dump.malloc_at(0x10_0000 * step + line * 0x1000, 2048, &stack);
        }
    });
    let cases = [
        (leak_in_two_steps, CauseKind::PossibleLeak, "Perhaps a leak: "),
        (swelling, CauseKind::Growth, "Growth: "),
        (states(&[20, 25]), CauseKind::DoubledStates, "Waste: optimizer states"),
        (hooks, CauseKind::Leak, "Leak: a hook keeps what it sees: "),
    ];
    for (dump, kind, first_words) in cases {
        let found = causes(&ask(&dump));
        let [cause] = &found[..] else { panic!("{kind:?}: {found:?}") };
        assert_eq!(cause.kind, kind);
        assert!(cause.sentence.starts_with(first_words), "{}", cause.sentence);
        assert!(said(&dump).contains(&cause.sentence), "{}", cause.sentence);
        assert!(!cause.advice.is_empty() && cause.bytes > 0 && cause.line.is_some(), "{cause:?}");
    }
}
