//! What PyTorch's pool would have done under other settings and on other cards.
//!
//! A recording says what a job asked of the pool and when. Here the same requests go through a model of torch_npu's
//! caching allocator, which says what it would have held, what it would have asked of the driver, and whether it would
//! have run out. Nothing of this was measured; how well it agrees with the real allocator is told in
//! `docs/would-it-fit.md` and held by `make test-replay`.
//!
//! * [`settings`]: how the allocator can be told to behave.
//! * [`requests`], `split`: what a recorded job asked for.
//! * `allocator`, `driver`: the model.
//! * [`mod@replay`]: runs requests through the model; `agreement`: holds it against the recording.
//! * [`advice`]: which settings would help, and the smallest card.
//! * [`forecast`], with the `course` of memory in use: where growth leads, and what other batch sizes would need.
//! * [`mod@study`]: all of it about one card.
#![forbid(unsafe_code)]

pub mod advice;
pub mod forecast;
pub mod replay;
pub mod requests;
pub mod settings;
pub mod study;

mod agreement;
mod allocator;
mod course;
mod driver;
mod split;

pub use advice::{Trial, smallest_card, sweep};
pub use forecast::{BatchFit, Growth, GrowthByTime, batch_fit, growth};
pub use replay::{Conditions, Failure, Outcome, Sizes, replay, replay_watched};
pub use requests::{Collector, Requests};
pub use settings::AllocatorSettings;
pub use study::{Study, Wanted, study};
