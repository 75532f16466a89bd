//! The vocabulary every other crate speaks: facts, pools, devices, ids. No I/O, no unsafe.
//!
//! A [`Fact`] is one thing that happened or one definition that later facts refer to. The recorder
//! writes facts, the trace file stores them, the timeline gives them meaning.
#![forbid(unsafe_code)]

mod block;
mod device;
mod device_map;
mod fact;
mod module_names;
mod place;
pub mod ranges;
mod visible;
mod watch;

pub use block::{AddressSpace, AllocationInterface, BlockProperties, MemoryType, PageType, Pool};
pub use device::Device;
pub use device_map::DeviceMap;
pub use fact::{
    AccessKind, AutogradPhase, Fact, Framework, KernelPhase, LoopKind, LossReason, PoolRefusal, PoolSegment,
    ProcessInfoKey, PythonCallPhase, PythonFrame, RecordingState, Severity, SnapshotNumbers, SystemEvent, WorkPhase,
};
pub use fact::{MEMORY_FRACTION, STEP_RANGE_MESSAGE};
pub use module_names::driver_module_name;
pub use place::Place;
pub use ranges::ByteRange;
pub use visible::{is_steering, visible, visible_keeping};
pub use watch::{WatchCoverage, WatchDetail, WatchNote, dump_name};

/// A small vocabulary that is stored as a number.
pub trait Coded: Copy {
    /// Its number.
    fn code(self) -> u64;
    /// The value with this number; numbers of the future read as a fallback.
    fn from_code(code: u64) -> Self;
}

/// Declares a newtype over `u32` whose zero means "none".
macro_rules! id_type {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The absent id.
            pub const NONE: Self = Self(0);

            /// Whether this id refers to something.
            #[inline]
            pub fn is_some(self) -> bool {
                self.0 != 0
            }
        }
    };
}

id_type! {
    /// An interned string of one process.
    StringId
}
id_type! {
    /// An interned native or Python stack of one process.
    StackId
}
id_type! {
    /// An interned Python code object of one process.
    CodeId
}
id_type! {
    /// A loaded native module (executable or shared library) of one process.
    ModuleId
}

/// One fact with when, where and from which stack it was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// CLOCK_MONOTONIC nanoseconds. A free is stamped before the real call, an allocation after it.
    pub monotonic_ns: u64,
    /// Kernel thread id of the recording thread.
    pub thread_id: u32,
    /// Native call stack, if one was taken.
    pub native_stack: StackId,
    /// Python call stack, if one was taken.
    pub python_stack: StackId,
    /// What happened.
    pub fact: Fact<'a>,
}

impl Record<'_> {
    /// Order of facts that carry the same timestamp: frees come before everything else, so that an
    /// address freed and reused within one clock tick is closed before it is opened again.
    pub fn tie_rank(&self) -> u8 {
        match self.fact {
            Fact::Free { .. } | Fact::FreeByHandle { .. } => 0,
            _ => 1,
        }
    }
}
