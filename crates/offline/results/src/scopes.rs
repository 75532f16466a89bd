//! The settings a process was recorded with. A job may change them between its scopes: what a scope recorded is
//! shown as the settings of that scope say, whatever comes later.

use msmemscope_config::{EventSet, Recording, Settings, SettingsChange, Variant};
use msmemscope_output::ShownStacks;
use msmemscope_timeline::{DeviceFilter, EventFilter, EventKinds, TimelineSettings};
use msmemscope_trace::{Definitions, RecordedSettings};

/// All settings of a process.
pub struct Scopes {
    /// Those for the whole: the latest, with the analyses and stacks of all.
    pub settings: Settings,
    /// What is shown with the first settings.
    pub filter: EventFilter,
    /// What is shown with each of the later ones.
    pub later_filters: Vec<EventFilter>,
    /// What is shown of stacks, with the first settings and from each of the later ones on.
    pub shown_stacks: Vec<ShownStacks>,
}

impl Scopes {
    /// Of a recorded process, changed as the user asks.
    pub fn of(definitions: &Definitions, change: &SettingsChange) -> Self {
        Self::from_texts(&definitions.settings(), change)
    }

    /// The same with every kind of event shown.
    pub fn with_every_kind_of_event(mut self) -> Self {
        for filter in std::iter::once(&mut self.filter).chain(&mut self.later_filters) {
            filter.kinds = EventKinds::ALL;
        }
        self
    }

    /// What of the process is shown, said in the timeline's words.
    pub fn timeline(&self, process_ended: bool) -> TimelineSettings {
        TimelineSettings {
            filter: self.filter.clone(),
            later_filters: self.later_filters.clone(),
            steps: self.settings.steps.iter().map(|&step| u64::from(step)).collect(),
            process_ended,
            step_source: None,
        }
    }

    fn from_texts(recorded: &[RecordedSettings<'_>], change: &SettingsChange) -> Self {
        let defaults = || Settings::defaults(Variant::Msmemscope);
        let read = |recorded: &RecordedSettings<'_>| {
            let read = Recording::from_environment(&String::from_utf8_lossy(recorded.text));
            let settings = read.map_or_else(|_| defaults(), |recording| recording.settings);
            (change.apply_to(&settings).0, recorded.was_used)
        };
        let versions: Vec<(Settings, bool)> = recorded.iter().map(read).collect();
        let used_at = recorded.iter().zip(&versions).filter(|(_, (_, was_used))| *was_used);
        let shown_stacks = used_at.map(|(recorded, (version, _))| shown_stacks(recorded, version)).collect();
        let mut settings = match versions.last() {
            Some((last, _)) => last.clone(),
            None => change.apply_to(&defaults()).0,
        };
        // Where nothing was recorded nothing is shown, so nobody misses the filter of settings that were not used.
        let mut filter = None;
        let mut filters = Vec::with_capacity(versions.len());
        for (version, was_used) in &versions {
            if *was_used {
                filter = Some(event_filter(version));
            }
            filters.push(filter.clone());
        }
        let first_used = filters.iter().flatten().next().cloned().unwrap_or_else(|| event_filter(&settings));
        let mut filters = filters.into_iter().map(|filter| filter.unwrap_or_else(|| first_used.clone()));
        let filter = filters.next().unwrap_or_else(|| first_used.clone());
        let later_filters = filters.collect();

        let used = || versions.iter().filter(|(_, was_used)| *was_used).map(|(version, _)| version);
        if let Some(last) = used().next_back() {
            settings.analysis = last.analysis;
            settings.steps.clone_from(&last.steps);
            settings.call_stacks = last.call_stacks;
            settings.watch.clone_from(&last.watch);
        }
        for version in used() {
            settings.analysis = settings.analysis.union(version.analysis);
            settings.oom_block_count = settings.oom_block_count.max(version.oom_block_count);
            settings.watch = settings.watch.or_else(|| version.watch.clone());
            let (all, own) = (&mut settings.call_stacks, version.call_stacks);
            all.native_depth = all.native_depth.max(own.native_depth);
            all.python_depth = all.python_depth.max(own.python_depth);
        }
        Self { settings, filter, later_filters, shown_stacks }
    }
}

/// What settings show of stacks from when they came into force.
fn shown_stacks(recorded: &RecordedSettings<'_>, settings: &Settings) -> ShownStacks {
    ShownStacks {
        begin_monotonic_ns: recorded.begin_monotonic_ns,
        native: settings.call_stacks.native_depth.is_some(),
        python_depth: settings.call_stacks.python_depth,
    }
}

/// What settings let through, said in the timeline's words.
fn event_filter(settings: &Settings) -> EventFilter {
    let written = settings.events.written;
    EventFilter {
        devices: DeviceFilter {
            all_npus: settings.devices.all_npus,
            npus: (0..32).filter(|slot| settings.devices.npu_slots >> slot & 1 != 0).collect(),
            host: settings.devices.cpu,
        },
        kinds: EventKinds {
            allocations: written.contains(EventSet::ALLOC),
            frees: written.contains(EventSet::FREE),
            launches: written.contains(EventSet::LAUNCH),
            accesses: written.contains(EventSet::ACCESS),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_config::AnalysisSet;

    /// The text of settings with these events and analyses.
    fn text(events: EventSet, analysis: AnalysisSet) -> Vec<u8> {
        let change = SettingsChange { events: Some(events), analysis: Some(analysis), ..SettingsChange::default() };
        let (settings, _) = change.apply_to(&Settings::defaults(Variant::Msmemscope));
        let recording = Recording {
            settings,
            run_id: 0,
            wall_clock_offset_ns: 0,
            is_supervised: false,
            finisher: None,
            python_package: None,
        };
        recording.to_environment().into_bytes()
    }

    fn scopes(recorded: &[(&[u8], bool)], change: &SettingsChange) -> Scopes {
        let recorded: Vec<_> = recorded
            .iter()
            .zip(1..)
            .map(|(&(text, was_used), begin_monotonic_ns)| RecordedSettings { text, begin_monotonic_ns, was_used })
            .collect();
        Scopes::from_texts(&recorded, change)
    }

    #[test]
    fn every_scope_is_shown_as_its_settings_say() {
        let memory = text(EventSet::ALLOC.union(EventSet::FREE), AnalysisSet::LEAKS);
        let launches = text(EventSet::LAUNCH, AnalysisSet::default());
        let unused = text(EventSet::default(), AnalysisSet::OOM);
        let recorded: [(&[u8], bool); 5] =
            [(&unused, false), (&memory, true), (&unused, false), (&launches, true), (&unused, false)];
        let all = scopes(&recorded, &SettingsChange::default());
        let shown: Vec<_> = std::iter::once(&all.filter)
            .chain(&all.later_filters)
            .map(|filter| (filter.kinds.allocations, filter.kinds.frees, filter.kinds.launches))
            .collect();
        let (memory_shown, launches_shown) = ((true, true, false), (false, false, true));
        assert_eq!(shown, [memory_shown, memory_shown, memory_shown, launches_shown, launches_shown]);
        assert_eq!(all.settings.analysis, AnalysisSet::LEAKS, "of all scopes, and of nothing else");

        let change = SettingsChange { events: Some(EventSet::ACCESS), ..SettingsChange::default() };
        let changed = scopes(&recorded, &change);
        assert!(std::iter::once(&changed.filter).chain(&changed.later_filters).all(|filter| filter.kinds.accesses));
    }

    #[test]
    fn what_was_never_recorded_has_its_last_settings() {
        let memory = text(EventSet::ALLOC, AnalysisSet::LEAKS);
        let launches = text(EventSet::LAUNCH, AnalysisSet::default());
        let all = scopes(&[(&memory, false), (&launches, false)], &SettingsChange::default());
        assert!(all.filter.kinds.launches && !all.filter.kinds.allocations);
        assert!(all.settings.analysis.is_empty());
        let none = scopes(&[], &SettingsChange::default());
        assert!(none.filter.kinds.allocations && none.later_filters.is_empty());
    }
}
