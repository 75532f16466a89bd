//! Phases as text: a table of memory before and after each.

use msmemscope_analysis::phases::Phase;

use crate::layout::push_wrapped;
use crate::table::{Align, Table};
use crate::units::{bytes, signed_bytes};

/// Phases in the table.
const TOLD_PHASES: usize = 24;

/// Memory before and after phases, in the order in which they came.
pub fn phases(phases: &[Phase]) -> String {
    let mut text = String::new();
    let heading = "Phases: memory that the framework had allocated before and after, what changed meanwhile, and what it \
                   had reserved and the card had in use in the end:";
    push_wrapped(&mut text, heading, "");
    let columns = [
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        ("reserved", Align::Right),
        ("card", Align::Right),
        ("phase", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let has_several_devices = phases.iter().any(|phase| phase.device != phases[0].device);
    for phase in phases.iter().take(TOLD_PHASES) {
        let ended = |text: String| if phase.times == 0 { String::new() } else { text };
        table.row([
            bytes(phase.before.allocated_bytes),
            ended(bytes(phase.after.allocated_bytes)),
            ended(signed_bytes(phase.change_bytes)),
            ended(bytes(phase.after.reserved_bytes)),
            ended(bytes(phase.after.card_bytes)),
            title(phase, has_several_devices),
        ]);
    }
    text.push_str(&table.render());
    if let Some(more) = phases.len().checked_sub(TOLD_PHASES).filter(|more| *more > 0) {
        text.push_str(&format!("  and {more} more\n"));
    }
    if phases.iter().all(|phase| phase.before.reserved_bytes == 0 && phase.after.reserved_bytes == 0) {
        text.push_str("  No framework has told its counters: only what the card has in use is known.\n");
    }
    text
}

/// Its name, and what else there is to say about it.
fn title(phase: &Phase, has_several_devices: bool) -> String {
    let mut title = short_name(&phase.name);
    if has_several_devices {
        title = format!("{title} on {}", phase.device);
    }
    if phase.times > 1 {
        title = format!("{title}, {} times", phase.times);
    }
    if phase.is_open { format!("{title} (not ended)") } else { title }
}

/// `class.function` of a hooked function; other names are those that users gave.
fn short_name(name: &str) -> String {
    match name.split('@').collect::<Vec<_>>()[..] {
        [module, "", function] => {
            let module = module.rsplit('.').next().unwrap_or(module);
            format!("{module}.{function}")
        }
        [_, class, function] => format!("{class}.{function}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use msmemscope_analysis::phases::PhaseMemory;
    use msmemscope_event::Device;

    use super::*;

    #[test]
    fn names_of_functions_are_short_and_numbers_have_units() {
        let memory = |allocated_bytes| PhaseMemory { allocated_bytes, reserved_bytes: 4 << 20, card_bytes: 8 << 20 };
        let phase = |name: &str, is_open: bool| Phase {
            name: name.to_owned(),
            device: Device::Npu(3),
            times: u64::from(!is_open),
            before: memory(0),
            after: memory(if is_open { 0 } else { 3 << 20 }),
            change_bytes: if is_open { 0 } else { 3 << 20 },
            peak_allocated_bytes: 0,
            took_ns: 1_500_000_000,
            is_open,
        };
        let text = phases(&[
            phase("vllm_ascend.worker.model_runner_v1@NPUModelRunner@load_model", false),
            phase("megatron.core.optimizer@@get_megatron_optimizer", false),
            phase("warm-up", true),
        ]);
        for words in
            ["+3.0 MiB", "NPUModelRunner.load_model", "optimizer.get_megatron_optimizer", "warm-up (not ended)"]
        {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}
