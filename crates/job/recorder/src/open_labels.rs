//! The labelled regions a thread is in, and how many of them its recording knows.
//!
//! A thread may enter regions before there is a recording, or before it has anything to record, and a
//! forked child is in the regions of the thread that forked. The recording is told with the first fact
//! of the thread, so labels alone make no recording. Nothing here allocates.

use std::cell::Cell;

use msmemscope_event::{Fact, StringId};

/// Regions beyond this depth are recorded, but a forked child does not know that it is in them.
const MOST_LABELS: usize = 32;

/// Level and text of a label.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OpenLabel {
    /// Level in the owner path.
    pub level: u32,
    /// The text.
    pub label: StringId,
}

impl OpenLabel {
    const NONE: Self = Self { level: 0, label: StringId::NONE };

    /// What is recorded when the region is entered.
    pub fn push(self) -> Fact<'static> {
        Fact::LabelPush { level: self.level, label: self.label }
    }

    /// What is recorded when it is left.
    pub fn pop(self) -> Fact<'static> {
        Fact::LabelPop { level: self.level, label: self.label }
    }
}

/// Open labels of a thread, the outermost first. Those that the recording knows come before the others.
pub struct OpenLabels {
    labels: [Cell<OpenLabel>; MOST_LABELS],
    count: Cell<usize>,
    recorded: Cell<usize>,
}

impl OpenLabels {
    /// No region is open.
    pub const fn new() -> Self {
        Self {
            labels: [const { Cell::new(OpenLabel::NONE) }; MOST_LABELS],
            count: Cell::new(0),
            recorded: Cell::new(0),
        }
    }

    /// The recording knows nothing yet, since it is a new one.
    pub fn begin_recording(&self) {
        self.recorded.set(0);
    }

    /// The outermost label that the recording does not know.
    pub fn next_unrecorded(&self) -> Option<OpenLabel> {
        let position = self.recorded.get();
        (position < self.count.get()).then(|| self.labels[position].get())
    }

    /// The label that [`OpenLabels::next_unrecorded`] gave is recorded.
    pub fn note_recorded(&self) {
        self.recorded.set(self.recorded.get() + 1);
    }

    /// Enters a region. False if there is no place to remember it.
    pub fn enter(&self, label: OpenLabel) -> bool {
        let position = self.count.get();
        let Some(place) = self.labels.get(position) else { return false };
        place.set(label);
        self.count.set(position + 1);
        true
    }

    /// Leaves the innermost region with this label. True if the recording has to be told.
    pub fn leave(&self, label: OpenLabel) -> bool {
        let count = self.count.get();
        let Some(position) = (0..count).rev().find(|&position| self.labels[position].get() == label) else {
            return true;
        };
        for later in position + 1..count {
            self.labels[later - 1].set(self.labels[later].get());
        }
        self.count.set(count - 1);
        let is_recorded = position < self.recorded.get();
        if is_recorded {
            self.recorded.set(self.recorded.get() - 1);
        }
        is_recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(number: u32) -> OpenLabel {
        OpenLabel { level: 5, label: StringId(number) }
    }

    fn record_all(labels: &OpenLabels) -> Vec<u32> {
        let mut recorded = Vec::new();
        while let Some(label) = labels.next_unrecorded() {
            labels.note_recorded();
            recorded.push(label.label.0);
        }
        recorded
    }

    #[test]
    fn a_recording_is_told_of_every_open_label_once() {
        let labels = OpenLabels::new();
        assert!(labels.enter(label(1)) && labels.enter(label(2)) && labels.enter(label(3)));
        assert!(!labels.leave(label(2)), "nobody was told that it is open");
        assert_eq!(record_all(&labels), [1, 3]);
        assert!(labels.enter(label(4)));
        assert!(labels.leave(label(1)), "the recording knows it as open");
        assert_eq!(record_all(&labels), [4]);
        labels.begin_recording();
        assert_eq!(record_all(&labels), [3, 4]);
    }

    #[test]
    fn labels_beyond_the_places_are_only_recorded() {
        let labels = OpenLabels::new();
        assert!((0..MOST_LABELS as u32).all(|number| labels.enter(label(number))));
        assert!(!labels.enter(label(99)));
        assert!(labels.leave(label(99)));
        assert_eq!(record_all(&labels).len(), MOST_LABELS);
    }
}
