//! Linking: which further events an event or an analysis brings along.
//!
//! Two sets result. *Collected* is what the recorder takes down, *written* is what appears in the
//! output files. Additions that the user manual promises (a free with every allocation, the events of
//! an analysis the user asked for) are written; additions an analysis merely needs for itself are
//! collected only, so that output does not grow by rows nobody asked for.

use msmemscope_settings::{AnalysisSet, EventSelection, EventSet, Settings};

use crate::note::Note;

/// What an analysis adds to the events.
pub(crate) struct AnalysisNeeds {
    /// The analysis.
    pub(crate) analysis: AnalysisSet,
    /// Added to both sets if the user asked for the analysis.
    pub(crate) written: EventSet,
    /// Added to the collected set only.
    pub(crate) collected: EventSet,
}

/// What each analysis adds, as the manual promises it.
pub(crate) const ANALYSIS_NEEDS: &[AnalysisNeeds] = &[
    AnalysisNeeds { analysis: AnalysisSet::LEAKS, written: EventSet::MEMORY, collected: EventSet::NONE },
    AnalysisNeeds { analysis: AnalysisSet::DECOMPOSE, written: EventSet::MEMORY, collected: EventSet::ACCESS },
    AnalysisNeeds {
        analysis: AnalysisSet::INEFFICIENT,
        written: EventSet::MEMORY.union(EventSet::ACCESS).union(EventSet::LAUNCH),
        collected: EventSet::NONE,
    },
    AnalysisNeeds { analysis: AnalysisSet::OOM, written: EventSet::NONE, collected: EventSet::MEMORY },
];

/// What linking made of the user's wishes.
pub(crate) struct Linked {
    pub(crate) events: EventSelection,
    pub(crate) analysis: AnalysisSet,
    pub(crate) note: Option<Note>,
}

/// Links the events and analyses a user asked for; where `None`, what `base` says holds.
///
/// Explicitly no events wins over every analysis: those are then off, with a note.
pub(crate) fn link(asked_events: Option<EventSet>, asked_analysis: Option<AnalysisSet>, base: &Settings) -> Linked {
    let analysis = asked_analysis.unwrap_or(base.analysis);
    let mut written = asked_events.unwrap_or(base.events.written);
    if written.is_empty() {
        return Linked {
            events: EventSelection { collected: EventSet::NONE, written: EventSet::NONE },
            analysis: AnalysisSet::NONE,
            note: (!analysis.is_empty()).then_some(Note::AnalysisWithoutEvents(analysis)),
        };
    }
    if written.intersects(EventSet::MEMORY.union(EventSet::ACCESS)) {
        written = written.union(EventSet::MEMORY);
    }
    let mut collected = written;
    for needs in ANALYSIS_NEEDS.iter().filter(|needs| analysis.contains(needs.analysis)) {
        collected = collected.union(needs.written).union(needs.collected);
        if asked_analysis.is_some() {
            written = written.union(needs.written);
        }
    }
    Linked { events: EventSelection { collected, written }, analysis, note: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use msmemscope_settings::Variant;

    fn link_defaults(events: Option<EventSet>, analysis: Option<AnalysisSet>) -> Linked {
        link(events, analysis, &Settings::defaults(Variant::Msmemscope))
    }

    fn events(words: &str) -> EventSet {
        words.split(',').filter_map(EventSet::from_word).fold(EventSet::NONE, EventSet::union)
    }

    #[test]
    fn events_and_analyses_bring_their_companions() {
        let leaks = Some(AnalysisSet::LEAKS);
        let none = Some(AnalysisSet::NONE);
        for (asked_events, asked_analysis, collected, written) in [
            (None, None, "alloc,free,launch", "alloc,free,launch"),
            (Some("alloc"), none, "alloc,free", "alloc,free"),
            (Some("free"), none, "alloc,free", "alloc,free"),
            (Some("access"), none, "alloc,free,access", "alloc,free,access"),
            (Some("launch"), none, "launch", "launch"),
            (Some("traceback"), none, "traceback", "traceback"),
            (Some("launch"), None, "alloc,free,launch", "launch"),
            (Some("launch"), leaks, "alloc,free,launch", "alloc,free,launch"),
            (Some("launch"), Some(AnalysisSet::OOM), "alloc,free,launch", "launch"),
            (Some("launch"), Some(AnalysisSet::DECOMPOSE), "alloc,free,launch,access", "alloc,free,launch"),
            (Some("alloc"), Some(AnalysisSet::INEFFICIENT), "alloc,free,launch,access", "alloc,free,launch,access"),
        ] {
            let linked = link_defaults(asked_events.map(events), asked_analysis);
            assert_eq!(linked.events.collected, events(collected), "collected of {asked_events:?} {asked_analysis:?}");
            assert_eq!(linked.events.written, events(written), "written of {asked_events:?} {asked_analysis:?}");
            assert!(linked.note.is_none());
        }
    }

    #[test]
    fn no_events_win_over_any_analysis() {
        for (asked, noted) in [(None, AnalysisSet::LEAKS), (Some(AnalysisSet::INEFFICIENT), AnalysisSet::INEFFICIENT)] {
            let linked = link_defaults(Some(EventSet::NONE), asked);
            assert!(linked.events.collected.is_empty() && linked.analysis.is_empty());
            assert_eq!(linked.note, Some(Note::AnalysisWithoutEvents(noted)));
        }
        assert_eq!(link_defaults(Some(EventSet::NONE), Some(AnalysisSet::NONE)).note, None);
    }

    #[test]
    fn written_events_are_always_collected() {
        for event_bits in 0..32 {
            for analysis_bits in 0..16 {
                let linked =
                    link_defaults(Some(EventSet::from_bits(event_bits)), Some(AnalysisSet::from_bits(analysis_bits)));
                assert!(linked.events.collected.contains(linked.events.written));
            }
        }
    }
}
