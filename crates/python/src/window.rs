//! What happened to device memory between two marks of a recording, also of one that still goes on.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use msmemscope_analysis::names::user_frame;
use msmemscope_analysis::{Names, RecordingNames};
use msmemscope_event::{Device, Pool, StackId};
use msmemscope_import::open_several;
use msmemscope_timeline::{BlockEvent, EventKind, TimelineEvent, TimelineSettings, run};
use pyo3::prelude::*;

use crate::analysis::reading;
use crate::exceptions::AnalysisError;

/// The use of one pool on one device.
#[derive(Clone, Copy)]
struct Use {
    place: (Pool, Device),
    used_bytes: u64,
    at_begin_bytes: u64,
    peak_bytes: u64,
}

/// A block that was allocated in the window and not freed in it.
struct Kept {
    place: (Pool, Device),
    size_bytes: u64,
    python_stack: StackId,
}

/// Follows the events of a recording.
struct Window<'a> {
    begin: &'a str,
    end: &'a str,
    is_open: bool,
    uses: BTreeMap<(&'static str, u32), Use>,
    kept: HashMap<u64, Kept>,
}

impl Window<'_> {
    fn take(&mut self, event: TimelineEvent) {
        match event.kind {
            EventKind::Mark { message, .. } if *message == *self.begin => {
                self.is_open = true;
                for use_ in self.uses.values_mut() {
                    use_.at_begin_bytes = use_.used_bytes;
                    use_.peak_bytes = use_.used_bytes;
                }
            }
            EventKind::Mark { message, .. } if *message == *self.end => self.is_open = false,
            EventKind::Malloc(block) => {
                self.follow(&block);
                if self.is_open && !block.shadow {
                    let place = (block.properties.pool, block.properties.device);
                    let (size_bytes, python_stack) = (block.size_bytes, event.python_stack);
                    self.kept.insert(block.allocation_id, Kept { place, size_bytes, python_stack });
                }
            }
            EventKind::Free(block) => {
                self.follow(&block);
                if self.is_open {
                    self.kept.remove(&block.allocation_id);
                }
            }
            _ => {}
        }
    }

    fn follow(&mut self, block: &BlockEvent) {
        let place = (block.properties.pool, block.properties.device);
        let key = (place.0.event_type(), place.1.code());
        let empty = Use { place, used_bytes: 0, at_begin_bytes: 0, peak_bytes: 0 };
        let use_ = self.uses.entry(key).or_insert(empty);
        use_.used_bytes = block.used_bytes;
        if self.is_open {
            use_.peak_bytes = use_.peak_bytes.max(block.used_bytes);
        }
    }
}

/// Of each pool and device: pool, device, bytes at the begin, highest bytes in between.
type Peaks = Vec<(String, String, u64, u64)>;
/// Of each line that allocated what was kept: pool, device, line, blocks, bytes; most bytes first.
type Leftovers = Vec<(String, String, String, u64, u64)>;

/// Use of device memory between the marks `begin` and `end`, and what was allocated and kept there.
#[pyfunction]
fn memory_between(py: Python<'_>, path: PathBuf, begin: String, end: String) -> PyResult<(Peaks, Leftovers)> {
    reading(py, || {
        let imported = open_several(&[&path]).map_err(|error| AnalysisError::new_err(error.to_string()))?;
        let Some(recording) = imported.recordings.first() else {
            return Err(AnalysisError::new_err(format!("{}: nothing is recorded", path.display())));
        };
        let settings = TimelineSettings { process_ended: false, ..TimelineSettings::default() };
        let (uses, kept) = (BTreeMap::new(), HashMap::new());
        let mut window = Window { begin: &begin, end: &end, is_open: false, uses, kept };
        run(recording, &settings, &mut |event: TimelineEvent| window.take(event), &mut |_, _| {});
        let names = RecordingNames::new(recording);
        let mut sites: HashMap<(&str, String, String), (u64, u64)> = HashMap::new();
        for kept in window.kept.values() {
            let frames = names.python_frames(kept.python_stack);
            let line = user_frame(&frames).map_or(String::new(), |frame| frame.describe());
            let site = sites.entry((kept.place.0.event_type(), kept.place.1.to_string(), line)).or_default();
            site.0 += 1;
            site.1 += kept.size_bytes;
        }
        let mut leftovers: Leftovers = sites
            .into_iter()
            .map(|((pool, device, line), (blocks, bytes))| (pool.to_owned(), device, line, blocks, bytes))
            .collect();
        leftovers.sort_by(|one, other| other.4.cmp(&one.4).then_with(|| one.cmp(other)));
        let peaks = window.uses.values().map(|use_| {
            let (pool, device) = use_.place;
            (pool.event_type().to_owned(), device.to_string(), use_.at_begin_bytes, use_.peak_bytes)
        });
        Ok((peaks.collect(), leftovers))
    })
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(memory_between, module)?)
}
