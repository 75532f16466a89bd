//! Watching memory blocks: who changes contents that nobody declared to change?
//!
//! Around every operator the watched blocks are copied from the device and hashed, or dumped. This
//! runs inside the traced process, and it too only records what it saw: the contents' hash, what
//! changed since the look before, and what operators declared to write. What that means is for the
//! report to say.
//!
//! * [`explicit`]: blocks that the user names, or the outputs of an operator the user names.
//! * [`automatic`]: a hunt through all live blocks, or those of an owner, within a budget.
//! * [`fingerprint`] and [`checksum`]: what contents are reduced to.
//! * [`live_blocks`]: which blocks there are. [`regions`]: whose they are. [`device`]: how their contents are read.
//! * [`launches`]: what is seen before a kernel has its name.
//! * [`session`]: all of that together. [`process`]: where it happens. [`observers`]: what the recorder calls by itself.
//! * [`dump`]: names and files of dumps. [`operator_name`]: which operator a user means.

pub mod automatic;
pub mod checksum;
pub mod device;
pub mod dump;
pub mod explicit;
pub mod fingerprint;
pub mod launches;
pub mod live_blocks;
pub mod observers;
pub mod operator_name;
pub mod process;
mod reading;
pub mod regions;
pub mod session;
pub mod surroundings;

pub use automatic::{Hunt, HuntBudget};
pub use explicit::{Explicit, Selection, Target};
pub use launches::HeldLooks;
pub use live_blocks::{LiveBlock, LiveBlocks};
pub use regions::Regions;
pub use surroundings::{Launch, OperatorCall, Output, Surroundings, WatchRecord};
