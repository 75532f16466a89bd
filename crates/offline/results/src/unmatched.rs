//! Says which filters matched nothing, and what there would have been: results without rows need a reason.

use std::collections::BTreeSet;

use msmemscope_event::Device;
use msmemscope_timeline::{Summary, TimelineSettings};

use msmemscope_report::units::count;

/// One line for each filter that nothing of a process matched.
pub fn unmatched_filters(settings: &TimelineSettings, summary: &Summary) -> Vec<String> {
    unmatched_steps(&settings.steps, summary).into_iter().chain(unmatched_devices(settings, summary)).collect()
}

fn unmatched_steps(chosen: &[u64], summary: &Summary) -> Option<String> {
    let missing: Vec<String> =
        chosen.iter().filter(|&&step| step > summary.latest_step).map(|step| step.to_string()).collect();
    let steps = match missing.len() {
        0 => return None,
        1 => "step",
        _ => "steps",
    };
    let there_were = match summary.steps {
        0 => "the job told of no steps".to_owned(),
        1 => "the job had 1 step".to_owned(),
        number => format!("the job had {} steps", count(number)),
    };
    Some(format!("no {steps} {}: {there_were}", missing.join(", ")))
}

/// Cards that were chosen by number, if the process used others only. One of many processes need not use all.
fn unmatched_devices(settings: &TimelineSettings, summary: &Summary) -> Option<String> {
    if settings.filters().any(|filter| filter.devices.all_npus) {
        return None;
    }
    let chosen: BTreeSet<u16> = settings.filters().flat_map(|filter| filter.devices.npus.iter().copied()).collect();
    let seen: BTreeSet<u16> = summary
        .pools
        .iter()
        .filter_map(|pool| match pool.device {
            Device::Npu(number) => Some(number),
            _ => None,
        })
        .collect();
    if chosen.is_empty() || seen.is_empty() || !chosen.is_disjoint(&seen) {
        return None;
    }
    let listed = |numbers: &BTreeSet<u16>| {
        let names: Vec<String> = numbers.iter().map(|number| format!("npu:{number}")).collect();
        names.join(", ")
    };
    Some(format!("nothing was recorded on {}; events were seen on {}", listed(&chosen), listed(&seen)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_event::Pool;
    use msmemscope_timeline::{DeviceFilter, EventFilter, PoolSummary};

    #[test]
    fn missing_steps_are_named_with_what_there_was() {
        let settings = |steps: &[u64]| TimelineSettings { steps: steps.to_vec(), ..TimelineSettings::default() };
        let job = Summary { steps: 8, latest_step: 9, ..Summary::default() };
        assert!(unmatched_filters(&settings(&[]), &job).is_empty());
        assert!(unmatched_filters(&settings(&[1, 8, 9]), &job).is_empty(), "behind the last step() is a step as well");
        assert_eq!(unmatched_filters(&settings(&[99]), &job), ["no step 99: the job had 8 steps"]);
        assert_eq!(unmatched_filters(&settings(&[1, 98, 99]), &job), ["no steps 98, 99: the job had 8 steps"]);
        assert_eq!(unmatched_filters(&settings(&[1]), &Summary::default()), ["no step 1: the job told of no steps"]);
    }

    #[test]
    fn cards_that_were_not_used_are_named_if_no_chosen_one_was() {
        let on = |npus: &[u16]| {
            let devices = DeviceFilter { all_npus: false, npus: npus.to_vec(), host: true };
            TimelineSettings { filter: EventFilter { devices, ..EventFilter::ALL }, ..TimelineSettings::default() }
        };
        let devices = [Device::Npu(1), Device::Npu(0), Device::Npu(0), Device::Host];
        let pools = devices.map(|device| PoolSummary::unused(Pool::Hal, device)).into();
        let job = Summary { pools, ..Summary::default() };
        let notes = unmatched_filters(&on(&[7]), &job);
        assert_eq!(notes, ["nothing was recorded on npu:7; events were seen on npu:0, npu:1"]);
        assert!(unmatched_filters(&on(&[7, 1]), &job).is_empty());
        assert!(unmatched_filters(&on(&[]), &job).is_empty());
        assert!(unmatched_filters(&on(&[7]), &Summary::default()).is_empty(), "without events that is said elsewhere");
        assert!(unmatched_filters(&TimelineSettings::default(), &job).is_empty());
    }
}
