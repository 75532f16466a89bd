//! The only door into a loaded recorder.
//!
//! Nothing links the recorder as code: a cdylib re-exports the symbols of what it links, and a second
//! copy of `halMemAlloc` would hold a second state. Instead the recorder exports one function,
//! [`ENTRY_SYMBOL`], that returns a [`ControlTable`]: C functions behind a version and a size. Whoever
//! wants to talk to the recorder of this process finds it with [`Recorder::find`].
//!
//! Texts cross the door once: [`Recorder::intern`] gives an id, and all later calls pass numbers only.
//!
//! The table may grow at its end. A recorder with a larger table serves an older caller; a caller that
//! meets a smaller table or another version is refused with one line that names both.

mod recorder;
mod table;

pub use recorder::{ConnectError, Recorder};
pub use table::{
    AccessFact, AllocationFact, BlockObserver, CollectionPlan, ControlTable, ENTRY_SYMBOL, EntryFunction,
    LaunchObserver, OperatorFact, OperatorObserver, PoolRefusalFact, PoolSegmentFact, Region, SOURCE_DRIVER,
    SOURCE_MSTX, SOURCE_POOL, SOURCE_RUNTIME, SnapshotFact, TABLE_VERSION, TensorFact, WatchFact,
};
