//! Where operators under way are in their graphs: they tell it when they begin, and it is known when they end.

use std::sync::Arc;

use msmemscope_event::StringId;
use rustc_hash::FxHashMap;

use crate::event::OperatorPlace;

/// Operators under way, by thread.
#[derive(Default)]
pub struct Places {
    open: FxHashMap<u32, Vec<(StringId, Arc<OperatorPlace>)>>,
}

impl Places {
    /// An operator begins.
    pub fn begin(&mut self, thread_id: u32, name: StringId, place: &Arc<OperatorPlace>) {
        self.open.entry(thread_id).or_default().push((name, Arc::clone(place)));
    }

    /// An operator ends. Those inside of it that never ended were left by an exception.
    pub fn end(&mut self, thread_id: u32, name: StringId) -> Option<Arc<OperatorPlace>> {
        let open = self.open.get_mut(&thread_id)?;
        let position = open.iter().rposition(|(each, _)| *each == name)?;
        let (_, place) = open.drain(position..).next()?;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_innermost_operator_of_the_name() {
        let place = |path: &str| Arc::new(OperatorPlace { path: path.into(), workspace: None });
        let (graph, node, other) = (StringId(1), StringId(2), StringId(3));
        let mut places = Places::default();
        places.begin(7, graph, &place("a"));
        places.begin(7, node, &place("a/0"));
        places.begin(8, node, &place("b"));
        assert_eq!(places.end(7, other), None);
        assert_eq!(places.end(7, node), Some(place("a/0")));
        places.begin(7, other, &place("a/1"));
        assert_eq!(places.end(7, graph), Some(place("a")), "what was inside is left with it");
        assert_eq!(places.end(7, other), None);
        assert_eq!(places.end(8, node), Some(place("b")));
    }
}
