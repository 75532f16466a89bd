//! What holds memory at a moment, by line and as trees, and what grew between two moments.

use msmemscope_analysis::Questions;
use msmemscope_analysis::grouping::{Grouping, UseNode};
use msmemscope_analysis::moment::{Moment, MomentQuestion, MomentReport};
use msmemscope_event::{AutogradPhase, BlockProperties, Device, Fact, Framework, KernelPhase, Pool, StringId};
use msmemscope_report as text;

use crate::support::{Dump, Traced};

const MAIN: &str = "/me/train.py(30): main\n";

/// Weights from the start; each step appends a block of growing size and keeps a workspace only in its first half.
fn growing() -> Dump {
    let mut dump = Dump::new();
    dump.malloc_with("PTA", 0, 0x10, 1000, ",owner:PTA@model@weight", &format!("/me/model.py(5): init\n{MAIN}"));
    for step in 1..=4u64 {
        dump.step_begin();
        let kept = format!("/me/train.py(12): step\n{MAIN}");
        dump.malloc_with("PTA", 0, 0x1000 * step, 100 * step, ",owner:PTA@ops@aten", &kept);
        if step == 1 {
            dump.malloc_with("PTA", 0, 0x9000, 50, "", "/me/train.py(14): step\n");
        }
        if step == 3 {
            dump.free("PTA", 0x9000);
        }
        dump.step_end();
    }
    dump
}

fn ask(question: MomentQuestion) -> MomentReport {
    growing().ask(&Questions { moments: question, ..Questions::default() }).moments.expect("moments")
}

fn steps(from: u64, to: u64) -> Option<(Moment, Moment)> {
    Some((Moment::Step { number: from }, Moment::Step { number: to }))
}

#[test]
fn what_grew_is_told_by_line() {
    let report = ask(MomentQuestion { grown: steps(2, 4), ..MomentQuestion::default() });
    assert!(report.pools.is_empty() && report.missing.is_empty());
    let pool = &report.grown.as_ref().expect("growth")[0];
    assert_eq!((pool.from_bytes, pool.to_bytes, pool.grown_bytes), (1350, 2000, 700));
    let lines: Vec<_> = pool.lines.iter().map(|line| (line.site.line.as_str(), line.bytes, line.blocks)).collect();
    assert_eq!(lines, [("/me/train.py:12 step", 700, 2)], "weights stay, and line 14 gave its block back");
    assert_eq!((pool.shrunk_lines, pool.shrunk_bytes), (1, 50));
    let said = text::moments(&report);
    let expected = "\
From the end of step 2 to the end of step 4 PyTorch caching on device 0 went
from 1.3 KiB to 2.0 KiB (+650 B).
What grew, 700 B in all, while one line holds 50 B less:
  bytes    share  blocks  allocated at
  700 B  100.0 %       2  /me/train.py:12 step
";
    assert_eq!(said, expected);
    let back = ask(MomentQuestion { grown: steps(4, 2), ..MomentQuestion::default() });
    assert!(text::moments(&back).contains("line holds 700 B less"), "{}", text::moments(&back));
}

#[test]
fn nothing_grows_between_a_moment_and_itself() {
    let report = ask(MomentQuestion { grown: steps(2, 2), ..MomentQuestion::default() });
    assert!(text::moments(&report).contains("No line holds more than before."), "{}", text::moments(&report));
}

#[test]
fn a_moment_that_never_comes_is_named() {
    let report = ask(MomentQuestion { grown: steps(2, 9), at: vec![Moment::Peak], ..MomentQuestion::default() });
    assert_eq!((report.missing.as_slice(), report.pools.len()), (["step:9".to_owned()].as_slice(), 1));
}

fn tree(by: Grouping, grown: bool) -> Vec<UseNode> {
    let question = match grown {
        true => MomentQuestion { by, grown: steps(2, 4), ..MomentQuestion::default() },
        false => MomentQuestion { by, ..MomentQuestion::at_peak() },
    };
    let report = ask(question);
    match report.grown {
        Some(pools) => pools[0].tree.clone(),
        None => report.pools[0].tree.clone(),
    }
}

fn flat(nodes: &[UseNode], depth: usize) -> Vec<(usize, String, u64, u64)> {
    let with_children = |node: &UseNode| {
        let own = (depth, node.name.clone(), node.bytes, node.blocks);
        std::iter::once(own).chain(flat(&node.children, depth + 1)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(with_children).collect()
}

fn named(rows: &[(usize, &str, u64, u64)]) -> Vec<(usize, String, u64, u64)> {
    rows.iter().map(|(depth, name, bytes, blocks)| (*depth, (*name).to_owned(), *bytes, *blocks)).collect()
}

#[test]
fn the_call_tree_starts_with_the_outermost_call() {
    let expected = [
        (0, "/me/train.py:30 main", 2000, 5),
        (1, "/me/model.py:5 init", 1000, 1),
        (1, "/me/train.py:12 step", 1000, 4),
    ];
    assert_eq!(flat(&tree(Grouping::CallTree, false), 0), named(&expected));
    let grown = [(0, "/me/train.py:30 main", 700, 2), (1, "/me/train.py:12 step", 700, 2)];
    assert_eq!(flat(&tree(Grouping::CallTree, true), 0), named(&grown));
}

#[test]
fn owners_are_those_of_the_moment() {
    let expected =
        [(0, "PTA", 2000, 5), (1, "model", 1000, 1), (2, "weight", 1000, 1), (1, "ops", 1000, 4), (2, "aten", 1000, 4)];
    assert_eq!(flat(&tree(Grouping::Owner, false), 0), named(&expected));
    let at = vec![Moment::Step { number: 1 }];
    let report = ask(MomentQuestion { at, by: Grouping::Owner, ..MomentQuestion::default() });
    let owners: Vec<_> = report.pools[0].tree.iter().map(|node| (node.name.as_str(), node.bytes)).collect();
    assert_eq!(owners, [("PTA", 1100), ("unknown", 50)], "the block that is freed in step 3 was there");
    let said = text::moments(&report);
    assert!(
        said.contains("\n  owner         bytes   share  blocks\n  PTA         1.1 KiB  95.7 %       2\n"),
        "{said}"
    );
}

#[test]
fn what_nobody_knows_is_said_to_be_unknown() {
    for (by, name) in [
        (Grouping::Module, "outside of modules"),
        (Grouping::Operator, "no operator"),
        (Grouping::Phase, "phase not known"),
    ] {
        assert_eq!(flat(&tree(by, false), 0), named(&[(0, name, 2000, 5)]));
    }
}

const DEVICE: Device = Device::Npu(0);

fn block(address: u64) -> Fact<'static> {
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    Fact::Allocation { properties, address, size_bytes: 0x1000 }
}

fn operator(name: StringId, begins: bool) -> Fact<'static> {
    let (framework, device, detail) = (Framework::Aten, DEVICE, StringId::NONE);
    match begins {
        true => Fact::OperatorBegin { framework, device, name, detail },
        false => Fact::OperatorEnd { framework, device, name, detail },
    }
}

fn at_peak(trace: Traced) -> MomentReport {
    let questions = Questions { moments: MomentQuestion::at_peak(), ..Questions::default() };
    trace.ask(&questions).moments.expect("moments")
}

/// A line that makes gradients anew in every step and keeps one loss: only the loss grows.
#[test]
fn of_a_line_that_grows_only_the_operators_that_grow_are_told() {
    let mut trace = Traced::new();
    let (gradient, loss) = (trace.string("aten.mm"), trace.string("aten.nll_loss"));
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    let made = |trace: &mut Traced, name, address| {
        trace.record(operator(name, true));
        trace.record_at_line(block(address), "step", "/me/train.py", 17);
        trace.record(operator(name, false));
    };
    for number in 1..=4 {
        trace.record(Fact::Step { device: DEVICE, number });
        if number > 1 {
            trace.record(Fact::Free { properties, address: 0x10_0000 });
        }
        made(&mut trace, gradient, 0x10_0000);
        made(&mut trace, loss, 0x20_0000 + 0x1000 * number);
    }
    trace.record(Fact::Step { device: DEVICE, number: 5 });
    let question = MomentQuestion { grown: steps(2, 4), ..MomentQuestion::default() };
    let report = trace.ask(&Questions { moments: question, ..Questions::default() }).moments.expect("moments");
    let line = &report.grown.as_ref().expect("growth")[0].lines[0];
    assert_eq!((line.bytes, line.blocks), (0x2000, 2));
    assert_eq!(line.operators, ["aten.nll_loss"]);
}

#[test]
fn operators_of_graphs_are_told_by_their_place() {
    let mut trace = Traced::new();
    let (linear, norm) = (trace.string("LinearOperation"), trace.string("RmsNormOperation"));
    let mut address = 0;
    let mut inside = |trace: &mut Traced, name, path: &'static str| {
        let (framework, device, detail) = (Framework::Atb, DEVICE, StringId::NONE);
        let (workspace_address, workspace_bytes, path) = (0, 0, path.as_bytes());
        trace.record(Fact::PlacedOperatorBegin { framework, device, name, workspace_address, workspace_bytes, path });
        address += 0x10000;
        trace.record(block(address));
        trace.record(Fact::OperatorEnd { framework, device, name, detail });
    };
    inside(&mut trace, linear, "0_7/token0/layer0/module0/op0");
    inside(&mut trace, linear, "0_7/token1/layer0/module0/op0");
    inside(&mut trace, linear, "0_7/token1/layer1/module0/op0");
    inside(&mut trace, norm, "0_7/1/0_layer/1_RmsNormOperation");
    inside(&mut trace, norm, "0_7/1/5_RmsNormOperation");
    let question = MomentQuestion { by: Grouping::Operator, ..MomentQuestion::at_peak() };
    let report = trace.ask(&Questions { moments: question, ..Questions::default() }).moments.expect("moments");
    let expected = [
        (0, "layer0", 0x2000, 2),
        (1, "module0", 0x2000, 2),
        (2, "op0 (LinearOperation)", 0x2000, 2),
        (0, "0_layer", 0x1000, 1),
        (1, "1_RmsNormOperation", 0x1000, 1),
        (0, "RmsNormOperation", 0x1000, 1),
        (0, "layer1", 0x1000, 1),
        (1, "module0", 0x1000, 1),
        (2, "op0 (LinearOperation)", 0x1000, 1),
    ];
    assert_eq!(flat(&report.pools[0].tree, 0), named(&expected));
}

#[test]
fn blocks_of_one_line_are_told_apart_by_the_kernel_before_them() {
    let peak_by = |by| {
        let mut trace = Traced::new();
        for (number, name) in ["Add_8", "Mul_8", "Add_8"].into_iter().enumerate() {
            let (phase, device, detail) = (KernelPhase::Launch, DEVICE, StringId::NONE);
            let (name, task_id) = (trace.string(name), number as u32);
            trace.record(Fact::Kernel { phase, device, name, stream_id: 1, task_id, detail });
            trace.record_at_line(block(0x10000 * (number as u64 + 1)), "main", "/me/train.py", 17);
        }
        let question = MomentQuestion { by, ..MomentQuestion::at_peak() };
        trace.ask(&Questions { moments: question, ..Questions::default() }).moments.expect("moments")
    };
    let report = peak_by(Grouping::Kernel);
    assert_eq!(flat(&report.pools[0].tree, 0), named(&[(0, "Add_8", 0x2000, 2), (0, "Mul_8", 0x1000, 1)]));
    let lines: Vec<_> = report.pools[0].lines.iter().map(|line| (line.site.line.as_str(), line.blocks)).collect();
    assert_eq!(lines, [("/me/train.py:17 main", 3)], "by line they are one");
    let owners = [(0, "PTA", 0x3000, 3), (1, "after kernel Add_8", 0x2000, 2), (1, "after kernel Mul_8", 0x1000, 1)];
    assert_eq!(flat(&peak_by(Grouping::Owner).pools[0].tree, 0), named(&owners));
}

#[test]
fn a_large_line_is_taken_apart_by_operator_and_module() {
    let mut trace = Traced::new();
    let addmm = trace.string("torch._ops.aten.addmm.default");
    for (number, module) in ["blocks.0.mlp", "blocks.11.mlp", "head"].into_iter().enumerate() {
        let name = trace.string(module);
        trace.record(Fact::ModuleBegin { name });
        trace.record(operator(addmm, true));
        trace.record(block(0x10000 * (number as u64 + 1)));
        trace.record(operator(addmm, false));
        trace.record(Fact::ModuleEnd { name });
    }
    let report = at_peak(trace);
    let line = &report.pools[0].lines[0];
    let parts: Vec<_> = line.parts.iter().map(|part| (part.module.as_str(), part.bytes, part.blocks)).collect();
    assert_eq!(parts, [("blocks.*.mlp", 0x2000, 2), ("head", 0x1000, 1)]);
    let said = text::moments(&report);
    assert!(said.contains("  8.0 KiB   66.7 %       2    addmm in blocks.*.mlp"), "{said}");
    assert!(said.contains("  4.0 KiB   33.3 %       1    addmm in head"), "{said}");
}

#[test]
fn a_module_whose_call_is_on_no_stack_any_more_has_been_left() {
    let module = "/venv/torch/nn/modules/module.py";
    let mut trace = Traced::new();
    let name = trace.string("blocks.0");
    trace.record(Fact::Autograd { phase: AutogradPhase::Forward, device: DEVICE });
    trace.record(Fact::ModuleBegin { name });
    trace.record_at_line(block(0x10000), "_call_impl", module, 1790);
    // An interrupt, of which nobody tells.
    trace.record_at_line(block(0x20000), "main", "/me/train.py", 17);
    trace.record(block(0x30000));
    let report = at_peak(trace);
    let lines = &report.pools[0].lines;
    let of = |line: &str| lines.iter().find(|of| of.site.line.starts_with(line)).expect(line);
    assert_eq!((&of(module).modules[..], &of(module).phases[..]), (&["blocks.0".to_owned()][..], &["forward"][..]));
    assert_eq!((of("/me/train.py").modules.len(), &of("/me/train.py").phases[..]), (0, &["other"][..]));
}

#[test]
fn what_autograd_allocates_belongs_to_who_called_for_the_backward_pass() {
    let mut trace = Traced::new();
    let mm = trace.string("torch._ops.aten.mm.default");
    let backward = Fact::Autograd { phase: AutogradPhase::Backward, device: DEVICE };
    trace.record_at_line(backward, "main", "/me/train.py", 17);
    trace.record(operator(mm, true));
    trace.record(block(0x10000));
    trace.record(operator(mm, false));
    trace.record(Fact::Autograd { phase: AutogradPhase::Other, device: DEVICE });
    trace.record(block(0x20000));
    let report = at_peak(trace);
    let lines: Vec<_> = report.pools[0].lines.iter().map(|line| (line.site.line.as_str(), line.blocks)).collect();
    assert_eq!(lines, [("/me/train.py:17 main", 1), ("no call stack recorded", 1)]);
    assert_eq!(report.pools[0].lines[0].operators, ["torch._ops.aten.mm.default"]);
}

#[test]
fn what_comes_behind_the_last_step_is_called_so() {
    let job = |is_late: bool| {
        let mut trace = Traced::new();
        for number in 1..=3 {
            trace.record(block(0x10000 * number));
            trace.record(Fact::Step { device: DEVICE, number });
        }
        if is_late {
            trace.record(block(0x90000));
        }
        text::moments(&at_peak(trace))
    };
    assert!(job(true).starts_with("At the peak after step 3 ("), "{}", job(true));
    assert!(job(false).starts_with("At the peak in step 3 ("), "{}", job(false));
}
