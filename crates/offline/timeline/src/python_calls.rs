//! Pairs begins and ends of Python calls into spans.
//!
//! All begins and ends of a thread get strictly increasing times, so that siblings never share a
//! boundary: viewers that rebuild the nesting from times would stack the second onto the first.

use msmemscope_event::{CodeId, PythonCallPhase, StringId};
use rustc_hash::FxHashMap;

use crate::event::PythonSpan;

#[derive(Debug, Default)]
struct ThreadCalls {
    open: Vec<(CodeId, StringId, u64)>,
    latest_ns: u64,
}

impl ThreadCalls {
    fn boundary(&mut self, wall_ns: u64) -> u64 {
        self.latest_ns = wall_ns.max(self.latest_ns.saturating_add(1));
        self.latest_ns
    }

    fn end_innermost(&mut self, wall_ns: u64) -> Option<PythonSpan> {
        let (code, name, start_ns) = self.open.pop()?;
        Some(PythonSpan { code, name, start_ns, end_ns: self.boundary(wall_ns) })
    }
}

/// Open calls of all threads.
#[derive(Debug, Default)]
pub(crate) struct PythonCallTracker {
    threads: FxHashMap<u32, ThreadCalls>,
    unmatched_ends: u64,
}

impl PythonCallTracker {
    /// Takes in one fact; returns the call it completes.
    pub(crate) fn take(
        &mut self,
        thread_id: u32,
        wall_ns: u64,
        phase: PythonCallPhase,
        code: CodeId,
        name: StringId,
    ) -> Option<PythonSpan> {
        let calls = self.threads.entry(thread_id).or_default();
        if phase != PythonCallPhase::End {
            let start_ns = calls.boundary(wall_ns);
            calls.open.push((code, name, start_ns));
            return None;
        }
        let span = calls.end_innermost(wall_ns);
        self.unmatched_ends += u64::from(span.is_none());
        span
    }

    /// Ends every open call; a call without end would not be shown at all.
    pub(crate) fn end_all(&mut self, wall_ns: u64) -> Vec<(u32, PythonSpan)> {
        let mut threads: Vec<_> = self.threads.iter_mut().collect();
        threads.sort_by_key(|(thread_id, _)| **thread_id);
        let mut spans = Vec::new();
        for (thread_id, calls) in threads {
            while let Some(span) = calls.end_innermost(wall_ns) {
                spans.push((*thread_id, span));
            }
        }
        spans
    }

    pub(crate) fn unmatched_ends(&self) -> u64 {
        self.unmatched_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_do_not_touch_and_open_calls_are_closed() {
        let mut tracker = PythonCallTracker::default();
        let mut call = |thread_id, wall_ns, phase, code| {
            tracker
                .take(thread_id, wall_ns, phase, CodeId(code), StringId::NONE)
                .map(|span| (span.start_ns, span.end_ns))
        };
        assert_eq!(call(1, 10, PythonCallPhase::AlreadyOpen, 1), None);
        assert_eq!(call(1, 10, PythonCallPhase::Begin, 2), None);
        assert_eq!(call(1, 12, PythonCallPhase::End, 0), Some((11, 12)));
        assert_eq!(call(1, 12, PythonCallPhase::Begin, 3), None);
        assert_eq!(call(2, 12, PythonCallPhase::End, 0), None);
        assert_eq!(call(1, 12, PythonCallPhase::End, 0), Some((13, 14)));
        let rest = tracker.end_all(20);
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].0, rest[0].1.start_ns, rest[0].1.end_ns), (1, 10, 20));
        assert_eq!(tracker.unmatched_ends(), 1);
        assert!(tracker.end_all(30).is_empty());
    }
}
