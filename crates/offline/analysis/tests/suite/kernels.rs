//! What kernels do with memory, launch by launch.

use msmemscope_analysis::Questions;
use msmemscope_analysis::kernels::KernelUse;
use msmemscope_event::{BlockProperties, Device, Fact, Framework, KernelPhase, Pool, StringId};

use crate::support::{Dump, Traced};

const CARD: Device = Device::Npu(0);

fn kernel(traced: &mut Traced, phase: KernelPhase, name: StringId, task_id: u32) {
    let detail = StringId::NONE;
    traced.record(Fact::Kernel { phase, device: CARD, name, stream_id: 1, task_id, detail });
}

fn block(traced: &mut Traced, address: u64, size_bytes: u64) {
    let properties = BlockProperties::framework(Pool::PytorchCaching, CARD);
    traced.record(Fact::Allocation { properties, address, size_bytes });
}

/// Memory that is allocated before a launch belongs to it, also what an operator frees there.
#[test]
fn memory_belongs_to_the_launch_behind_it() {
    let mut traced = Traced::new();
    let (add, mul, operator) = (traced.string("Add_8"), traced.string("Mul_8"), traced.string("aten.add"));
    let (framework, device, detail) = (Framework::Aten, CARD, StringId::NONE);
    block(&mut traced, 0x1000, 512);
    traced.record(Fact::OperatorBegin { framework, device, name: operator, detail });
    block(&mut traced, 0x2000, 4096);
    kernel(&mut traced, KernelPhase::Launch, add, 5);
    traced.record(Fact::OperatorEnd { framework, device, name: operator, detail });
    let properties = BlockProperties::framework(Pool::PytorchCaching, CARD);
    traced.record(Fact::Free { properties, address: 0x1000 });
    kernel(&mut traced, KernelPhase::Launch, mul, 6);
    kernel(&mut traced, KernelPhase::ExecuteStart, StringId::NONE, 5);
    kernel(&mut traced, KernelPhase::ExecuteEnd, StringId::NONE, 5);
    kernel(&mut traced, KernelPhase::Launch, add, 7);
    let report = traced.ask(&Questions { kernels: true, ..Questions::default() }).kernels.expect("kernels");
    let told = |kernel: &KernelUse| {
        let operators: Vec<(String, u64)> =
            kernel.operators.iter().map(|operator| (operator.name.clone(), operator.launches)).collect();
        (kernel.name.clone(), kernel.launches, kernel.change_bytes, kernel.largest_increase_bytes, operators)
    };
    let expected = [
        ("Add_8".to_owned(), 2, 4608, 4608, vec![("aten.add".to_owned(), 1)]),
        ("Mul_8".to_owned(), 1, -512, 0, vec![]),
    ];
    assert_eq!(report.kernels.iter().map(told).collect::<Vec<_>>(), expected);
    let add = &report.kernels[0];
    assert_eq!((add.measured, add.running_ns, add.waiting_ns), (1, 10, 40));
    let text = msmemscope_report::kernels(&report);
    assert!(text.contains("Add_8 by aten.add") && text.contains("Of 2 launches start or end is not known"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

/// A kernel of a graph is launched once, runs with the graph, and waits for nobody.
#[test]
fn kernels_of_graphs_run_often_and_do_not_wait() {
    let mut traced = Traced::new();
    let (add, mul) = (traced.string("Add_8"), traced.string("Mul_8"));
    block(&mut traced, 0x1000, 512);
    kernel(&mut traced, KernelPhase::Launch, add, 5);
    traced.record(Fact::KernelCaptured { device: CARD, name: add, stream_id: 1, task_id: 5 });
    kernel(&mut traced, KernelPhase::Launch, mul, 6);
    for task_id in [6, 5, 5, 5] {
        kernel(&mut traced, KernelPhase::ExecuteStart, StringId::NONE, task_id);
        kernel(&mut traced, KernelPhase::ExecuteEnd, StringId::NONE, task_id);
    }
    let report = traced.ask(&Questions { kernels: true, ..Questions::default() }).kernels.expect("kernels");
    let told = |kernel: &KernelUse| (kernel.launches, kernel.captured, kernel.graph_runs, kernel.measured);
    assert_eq!(report.kernels.iter().map(told).collect::<Vec<_>>(), [(1, 1, 3, 0), (1, 0, 0, 1)]);
    let [add, mul] = &report.kernels[..] else { panic!("{report:?}") };
    assert_eq!((add.change_bytes, add.running_ns, add.waiting_ns), (512, 30, 0));
    assert_eq!((mul.running_ns, mul.waiting_ns), (10, 10));
    let text = msmemscope_report::kernels(&report);
    assert!(text.contains("Captured in graphs: 1 of these launches, which ran 3 times;"), "{text}");
    assert!(!text.contains("is not known"), "{text}");
}

/// Where nobody says who has prepared what another thread launches no launch has an operator; people are told how to change
/// that.
#[test]
fn launches_on_another_thread_than_the_operators_are_explained() {
    for is_elsewhere in [true, false] {
        let mut dump = Dump::new();
        dump.begin("aten.add");
        dump.thread = if is_elsewhere { 8 } else { 7 };
        dump.kernel("Add_8");
        dump.thread = 7;
        dump.end("aten.add");
        let answers = dump.ask(&Questions { kernels: true, ..Questions::default() });
        let text = msmemscope_report::kernels(answers.kernels.as_ref().expect("kernels"));
        assert_eq!(text.contains("TASK_QUEUE_ENABLE"), is_elsewhere, "{text}");
    }
}

/// Without stacks and operators a kernel tells places apart.
#[test]
fn kernels_name_leaks_and_what_is_alive_at_the_peak() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin();
        dump.kernel("Add_8");
        dump.malloc("PTA", 0x10_0000 * step, 1 << 20);
        dump.kernel("Mul_8");
        dump.malloc("PTA", 0x80_0000 + 0x10_0000 * step, 1 << 20);
        dump.step_end();
    }
    let answers = dump.ask(&Questions::all());
    let leaks = answers.leaks.as_ref().expect("leaks");
    let mut lines: Vec<&str> = leaks.leaks.iter().map(|group| &group.site.line[..]).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["after kernel Add_8", "after kernel Mul_8"]);
    let text = msmemscope_report::leaks(leaks, &[], msmemscope_report::Style::Classic);
    assert!(text.contains("in kernel_3 at step 2.") && text.contains("\nkernel_3 is Add_8\n"), "{text}");
    let moments = answers.moments.as_ref().expect("the peak");
    assert!(msmemscope_report::moments(moments).contains("after kernel Mul_8"));
}

/// The number of a kernel is that among the launches.
#[test]
fn kernels_of_atb_are_counted_once() {
    let mut dump = Dump::new();
    for step in 1..=6u64 {
        dump.step_begin();
        dump.atb_kernel("AddKernel", |dump| _ = dump.kernel("Add_8"));
        dump.malloc("PTA", 0x10_0000 * step, 1 << 20);
        dump.step_end();
    }
    let answers = dump.ask(&Questions::all());
    let leaks = answers.leaks.as_ref().expect("leaks");
    let text = msmemscope_report::leaks(leaks, &[], msmemscope_report::Style::Classic);
    assert!(text.contains("in kernel_2 at step 2.") && text.contains("\nkernel_2 is Add_8\n"), "{text}");
}

/// An inefficient block is told by the kernel before it, and by its owner.
#[test]
fn kernels_name_inefficient_blocks() {
    let mut dump = Dump::new();
    dump.kernel("MatMul_8");
    dump.malloc_with("PTA", 0, 0x1000, 1 << 20, ",owner:PTA@model@weight", "");
    dump.begin("aten.sum").access("READ", "aten.sum", 0x1000).end("aten.sum");
    dump.kernel("Add_8");
    dump.malloc_with("PTA", 0, 0x80_0000, 1 << 10, ",owner:PTA@ops@aten", "");
    dump.free("PTA", 0x1000);
    let answers = dump.ask(&Questions::all());
    let inefficient = answers.inefficient.as_ref().expect("inefficiency");
    let finding = &inefficient.findings[0];
    assert_eq!((&finding.site.kernel[..], &finding.site.line[..]), ("MatMul_8", "after kernel MatMul_8"));
    let text = msmemscope_report::inefficient(inefficient).replace('\n', " ");
    assert!(text.contains("after kernel MatMul_8"), "{text}");
    assert_eq!(finding.site.owner, "PTA@model@weight");
}
