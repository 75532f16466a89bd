//! Things that last: operators, ranges, kernels and Python calls, in lanes of which each holds one at a time.

use msmemscope_columns::Column;
use rustc_hash::FxHashMap;

use super::texts::TextId;

/// Deeper nesting is drawn in the last lane of its thread.
const MOST_LANES: usize = 64;

/// One row of a track. Sorted, and nothing overlaps.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) start: Column<u64>,
    pub(crate) end: Column<u64>,
    pub(crate) name: Column<TextId>,
}

impl Lane {
    pub(crate) fn len(&self) -> usize {
        self.start.len()
    }

    fn push(&mut self, start: u64, end: u64, name: TextId) {
        // What is cut off by the limit of lanes may overlap its neighbour.
        let start = self.end.last().map_or(start, |&last| start.max(last));
        if end > start {
            self.start.push(start);
            self.end.push(end);
            self.name.push(name);
        }
    }
}

/// Lanes of threads (or streams), outermost first.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) threads: Vec<(u32, Vec<Lane>)>,
    positions: FxHashMap<u32, usize>,
}

impl Lanes {
    /// Lanes to which nothing is added any more.
    pub(crate) fn of_threads(threads: Vec<(u32, Vec<Lane>)>) -> Self {
        Self { threads, positions: FxHashMap::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Adds a span that has ended. Spans of one lane come in order.
    pub(crate) fn push(&mut self, thread: u32, depth: usize, start: u64, end: u64, name: TextId) {
        let position = *self.positions.entry(thread).or_insert_with(|| {
            self.threads.push((thread, Vec::new()));
            self.threads.len() - 1
        });
        let lanes = &mut self.threads[position].1;
        let depth = depth.min(MOST_LANES - 1);
        if lanes.len() <= depth {
            lanes.resize_with(depth + 1, Lane::default);
        }
        lanes[depth].push(start, end.max(start + 1), name);
    }

    /// Names used, each once.
    pub(crate) fn names(&self) -> Vec<TextId> {
        let mut names: Vec<TextId> = Vec::new();
        for lane in self.threads.iter().flat_map(|(_, lanes)| lanes) {
            names.extend_from_slice(&lane.name);
            names.sort_unstable();
            names.dedup();
        }
        names
    }
}

/// A span that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenSpan {
    key: u64,
    start: u64,
    name: TextId,
}

/// Follows spans that begin and end, thread by thread.
#[derive(Debug, Default)]
pub(crate) struct OpenSpans {
    threads: FxHashMap<u32, Vec<Option<OpenSpan>>>,
}

impl OpenSpans {
    /// A span begins, in the first free lane behind all open ones that are nested, or the first free one.
    pub(crate) fn begin(&mut self, thread: u32, key: u64, start: u64, name: TextId) {
        let open = self.threads.entry(thread).or_default();
        while open.last().is_some_and(Option::is_none) {
            open.pop();
        }
        let span = Some(OpenSpan { key, start, name });
        match open.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = span,
            None => open.push(span),
        }
    }

    /// A span ends, with everything that was opened inside it if spans of this track are nested.
    pub(crate) fn end(&mut self, thread: u32, key: u64, end: u64, is_nested: bool, lanes: &mut Lanes) {
        let Some(open) = self.threads.get_mut(&thread) else { return };
        let is_it = |place: &Option<OpenSpan>| place.is_some_and(|span| span.key == key);
        let Some(depth) = open.iter().rposition(is_it) else { return };
        let last = if is_nested { open.len() } else { depth + 1 };
        for inner in (depth..last).rev() {
            if let Some(span) = open[inner].take() {
                lanes.push(thread, inner, span.start, end, span.name);
            }
        }
    }

    /// The recording ends.
    pub(crate) fn end_all(self, end: u64, lanes: &mut Lanes) {
        for (thread, open) in self.threads {
            for (depth, span) in open.iter().enumerate() {
                if let Some(span) = span {
                    lanes.push(thread, depth, span.start, end, span.name);
                }
            }
        }
    }
}

/// Calls that are known when they have ended, the inner ones first.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    threads: FxHashMap<u32, Vec<(u64, u64, TextId)>>,
}

impl EndedCalls {
    pub(crate) fn push(&mut self, thread: u32, start: u64, end: u64, name: TextId) {
        self.threads.entry(thread).or_default().push((start, end, name));
    }

    /// Puts every call behind those that hold it.
    pub(crate) fn into_lanes(self) -> Lanes {
        let mut lanes = Lanes::default();
        let mut threads: Vec<_> = self.threads.into_iter().collect();
        threads.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, mut calls) in threads {
            calls.sort_unstable_by_key(|&(start, end, _)| (start, u64::MAX - end));
            let mut open: Vec<u64> = Vec::new();
            for (start, end, name) in calls {
                while open.last().is_some_and(|&outer| outer <= start) {
                    open.pop();
                }
                lanes.push(thread, open.len(), start, end, name);
                open.push(end);
            }
        }
        lanes
    }
}

/// Moments of one kind.
#[derive(Debug)]
pub(crate) struct Instants {
    pub(crate) track: &'static str,
    pub(crate) at: Column<u64>,
    pub(crate) name: Column<TextId>,
}

impl Instants {
    /// No moments so far.
    pub(crate) fn none(track: &'static str) -> Self {
        Self { track, at: Column::default(), name: Column::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lanes: &Lanes) -> Vec<Vec<(u64, u64, TextId)>> {
        let of = |lane: &Lane| (0..lane.len()).map(|at| (lane.start[at], lane.end[at], lane.name[at])).collect();
        lanes.threads[0].1.iter().map(of).collect()
    }

    #[test]
    fn nested_spans_lie_behind_those_that_hold_them() {
        let (mut open, mut lanes) = (OpenSpans::default(), Lanes::default());
        open.begin(1, 10, 0, 1);
        open.begin(1, 11, 5, 2);
        open.end(1, 11, 7, true, &mut lanes);
        open.begin(1, 12, 8, 3);
        open.end(1, 10, 20, true, &mut lanes);
        open.begin(1, 13, 30, 4);
        open.end_all(40, &mut lanes);
        assert_eq!(rows(&lanes), [vec![(0, 20, 1), (30, 40, 4)], vec![(5, 7, 2), (8, 20, 3)]]);
    }

    #[test]
    fn ranges_that_cross_have_rows_of_their_own() {
        let (mut open, mut lanes) = (OpenSpans::default(), Lanes::default());
        open.begin(1, 1, 0, 1);
        open.begin(1, 2, 5, 2);
        open.end(1, 1, 10, false, &mut lanes);
        open.begin(1, 3, 11, 3);
        open.end(1, 2, 15, false, &mut lanes);
        open.end(1, 3, 20, false, &mut lanes);
        assert_eq!(rows(&lanes), [vec![(0, 10, 1), (11, 20, 3)], vec![(5, 15, 2)]]);
    }

    #[test]
    fn calls_that_ended_find_their_depth() {
        let mut calls = EndedCalls::default();
        [(2, 3, 3), (1, 5, 2), (6, 7, 4), (0, 10, 1), (11, 12, 5)]
            .into_iter()
            .for_each(|(start, end, name)| calls.push(9, start, end, name));
        let lanes = calls.into_lanes();
        assert_eq!(rows(&lanes), [vec![(0, 10, 1), (11, 12, 5)], vec![(1, 5, 2), (6, 7, 4)], vec![(2, 3, 3)]]);
    }
}
