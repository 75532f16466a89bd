//! Where operators are in the graphs of a library such as ATB, as small numbers.
//!
//! A path starts with the process and the execution, which differ from run to run and from token to token:
//! `0_4711/token0/layer0/module0/op0`. What is left is the place in the graph, `layer0/module0/op0`: there are only as
//! many as the model has operators.

use rustc_hash::FxHashMap;

/// A place in a graph; none for operators that are not part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlaceId(u32);

/// All places that were told so far.
#[derive(Debug, Default)]
pub struct OperatorPlaces {
    ids: FxHashMap<Box<str>, PlaceId>,
    texts: Vec<Box<str>>,
}

impl OperatorPlaces {
    /// The place that a path names.
    pub fn of_path(&mut self, path: &str) -> PlaceId {
        let Some(place) = in_graph(path) else { return PlaceId::default() };
        if let Some(&known) = self.ids.get(place) {
            return known;
        }
        self.texts.push(place.into());
        let id = PlaceId(u32::try_from(self.texts.len()).unwrap_or_default());
        self.ids.insert(place.into(), id);
        id
    }

    /// The place that attributes of a row name: `path:...,workspace_ptr:...`.
    pub fn of_attributes(&mut self, attributes: &str) -> PlaceId {
        let path = attributes.split(',').find_map(|attribute| attribute.strip_prefix("path:"));
        self.of_path(path.unwrap_or_default())
    }

    /// The place in words; empty for none.
    pub fn text(&self, place: PlaceId) -> &str {
        let position = (place.0 as usize).checked_sub(1);
        position.and_then(|position| self.texts.get(position)).map_or("", |text| text)
    }
}

/// What of a path is the same in every process and execution; nothing for an operator outside of graphs, which its name
/// says as well.
fn in_graph(path: &str) -> Option<&str> {
    let (_process, rest) = path.split_once('/')?;
    let (_execution, place) = rest.split_once('/')?;
    place.contains('/').then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_in_every_process_and_execution() {
        let mut places = OperatorPlaces::default();
        let first = places.of_path("0_4711/token0/layer0/module0/op0");
        assert_eq!(places.of_path("1_4712/token7/layer0/module0/op0"), first);
        assert_ne!(places.of_path("0_4711/token0/layer1/module0/op0"), first);
        assert_eq!(places.of_attributes("path:0_5/token1/layer0/module0/op0,workspace_size:512"), first);
        assert_eq!(places.text(first), "layer0/module0/op0");
        for alone in ["0_4711/0/3_LinearOperation", "0_4711/token0", "LinearOperation", ""] {
            let none = places.of_path(alone);
            assert_eq!((none, places.text(none)), (PlaceId::default(), ""));
        }
    }
}
