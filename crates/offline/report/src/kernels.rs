//! Kernels as text.

use msmemscope_analysis::kernels::{KernelReport, KernelUse};

use crate::layout::{self, fit, fit_middle, push_wrapped};
use crate::table::{Align, Table};
use crate::units::{bytes, signed_bytes};

/// Kernels in the table.
const TOLD_KERNELS: usize = 12;
/// The place of the device, where there is more than one.
const DEVICE_COLUMN: usize = 5;

/// What kernels did with memory, those that changed most first.
pub fn kernels(report: &KernelReport) -> String {
    let mut text = String::new();
    if report.kernels.is_empty() {
        return text;
    }
    let launches: u64 = report.kernels.iter().map(|kernel| kernel.launches).sum();
    let heading = format!(
        "Kernels: {launches} launches of {} kernels. Memory is the change on the card since the launch before:",
        report.kernels.len()
    );
    push_wrapped(&mut text, &heading, "");
    let mut columns = vec![
        ("memory", Align::Right),
        ("largest", Align::Right),
        ("launches", Align::Right),
        ("ran", Align::Right),
        ("waited", Align::Right),
        ("kernel, launched by", Align::Left),
    ];
    let has_several_cards = report.kernels.iter().any(|kernel| kernel.device != report.kernels[0].device);
    if has_several_cards {
        columns.insert(DEVICE_COLUMN, ("device", Align::Right));
    }
    let mut table = Table::new(&columns);
    let told = &report.kernels[..report.kernels.len().min(TOLD_KERNELS)];
    for kernel in told {
        let mut row = vec![
            signed_bytes(kernel.change_bytes),
            bytes(kernel.largest_increase_bytes),
            kernel.launches.to_string(),
            mean(kernel.running_ns, kernel.measured + kernel.graph_runs),
            mean(kernel.waiting_ns, kernel.measured),
        ];
        if has_several_cards {
            row.insert(DEVICE_COLUMN, kernel.device.to_string());
        }
        table.row(row);
    }
    table.complete(told, described);
    text.push_str(&table.render());
    let sum = |count: fn(&KernelUse) -> u64| report.kernels.iter().map(count).sum::<u64>();
    let (captured, graph_runs) = (sum(|kernel| kernel.captured), sum(|kernel| kernel.graph_runs));
    if graph_runs > 0 {
        let graphs = format!(
            "Captured in graphs: {captured} of these launches, which ran {graph_runs} times; the time until then does not \
             count as waiting."
        );
        push_wrapped(&mut text, &graphs, "  ");
    }
    let unknown = sum(|kernel| kernel.launches.saturating_sub(kernel.captured + kernel.measured));
    if unknown > 0 {
        let reason = "their card dropped them, they were still running when recording stopped, or somebody else \
                      had its channel";
        push_wrapped(&mut text, &format!("Of {unknown} launches start or end is not known: {reason}."), "  ");
    }
    if report.operators_launch_nothing {
        let reason = "they prepare and launch kernels on a thread of their own, as torch_npu does with TASK_QUEUE_ENABLE=2; \
                      with 1, its default, or 0 it is known which operator launches which";
        push_wrapped(&mut text, &format!("No operators are named: {reason}."), "  ");
    }
    if report.kernels.len() > TOLD_KERNELS {
        text.push_str(&format!("  ... and {} more kernels\n", report.kernels.len() - TOLD_KERNELS));
    }
    text
}

/// The kernel in short, and who launches it, in a number of columns: the hash of its binary tells people nothing, and
/// where there is little room its type says enough beside the operator.
fn described(kernel: &KernelUse, columns: usize) -> String {
    let short = short_name(&kernel.name);
    let Some(operator) = kernel.operators.first() else { return fit(&short, columns) };
    let operator = operator.name.strip_prefix("torch._ops.").unwrap_or(&operator.name);
    let kind = short.split_once("_...").map_or(&*short, |(kind, _)| kind);
    let shortest = format!("{kind} by {}", operator.strip_suffix(".default").unwrap_or(operator));
    let ways = [format!("{short} by {operator}"), format!("{kind} by {operator}")];
    let fitting = ways.into_iter().find(|way| layout::columns(way) <= columns);
    fitting.unwrap_or_else(|| fit_middle(&shortest, columns))
}

/// `Add_..._8` for `Add_<32 digits>_8`.
fn short_name(name: &str) -> String {
    const HASH_DIGITS: usize = 32;
    let is_hash = |part: &&str| part.len() == HASH_DIGITS && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    match name.split('_').find(is_hash) {
        Some(hash) => name.replacen(hash, "...", 1),
        None => name.to_owned(),
    }
}

/// Time each of those took that were measured.
fn mean(total_ns: u64, count: u64) -> String {
    match total_ns.checked_div(count) {
        None => "-".to_owned(),
        Some(ns) if ns < 10_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        Some(ns) => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_analysis::kernels::LaunchingOperator;
    use msmemscope_event::Device;

    fn kernel(name: &str, operator: &str, largest_increase_bytes: u64) -> KernelUse {
        KernelUse {
            name: name.to_owned(),
            operators: vec![LaunchingOperator { name: operator.to_owned(), launches: 1 }],
            device: Device::Npu(0),
            launches: 1,
            change_bytes: 0,
            largest_increase_bytes,
            measured: 0,
            waiting_ns: 0,
            captured: 0,
            graph_runs: 0,
            running_ns: 0,
        }
    }

    #[test]
    fn kernel_and_operator_share_the_room_there_is() {
        let matmul = |operator| kernel("Matmul_0123456789abcdef0123456789abcdef_1_mix_aic", operator, 0);
        let mm = matmul("torch._ops.aten.mm.default");
        assert_eq!(described(&mm, 40), "Matmul_..._1_mix_aic by aten.mm.default");
        assert_eq!(described(&mm, 28), "Matmul by aten.mm.default");
        assert_eq!(described(&matmul("torch._ops.aten.linear_relu.default"), 28), "Matmul by aten.linear_relu");
    }

    #[test]
    fn names_get_the_room_that_numbers_leave() {
        for largest_increase_bytes in [0, 1_000, 1_000_000, 1_000_000_000_000] {
            let one = "One_0123456789abcdef0123456789abcdef_8";
            let long = "torch._ops.aten._foreach_addcmul_.Scalar";
            let kernels = vec![
                kernel(one, "torch._ops.aten.ones.default", largest_increase_bytes),
                kernel(one, long, largest_increase_bytes),
            ];
            let report = KernelReport { kernels, ..KernelReport::default() };
            let text = super::kernels(&report);
            assert!(text.contains("One by aten.ones") || text.contains("One_..._8 by aten.ones.default"), "{text}");
            assert!(text.contains("  One by aten._f"), "{text}");
            assert!(text.lines().all(|line| layout::columns(line) <= layout::WIDTH), "{text}");
        }
    }

    #[test]
    fn the_hash_of_a_binary_is_left_out() {
        assert_eq!(short_name("MatMul_0123456789abcdef0123456789abcdef_8_mix_aic"), "MatMul_..._8_mix_aic");
        assert_eq!(short_name("Cast"), "Cast");
    }
}
