//! The recorder in real processes: C programs on the stand-in device, with the library preloaded.
//!
//! They need `make standin` and a release build of the recorder and the thin libraries.

mod atb;
mod compaction;
mod control;
mod exact;
mod failures;
mod guest;
mod hazards;
mod kernels;
mod kill;
mod libraries;
mod marks;
mod places;
mod pool_totals;
mod prepared_work;
mod python_stacks;
mod stacks;
mod support;
mod torch_streams;
mod truth;
