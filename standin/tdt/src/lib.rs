//! Stand-in for CANN's `libacl_tdt_channel.so`: channels through which host and device hand tensors to each other.
//!
//! MindSpore listens on several of them for what operators print or summarise. No kernel of the stand-in sends, so what
//! the host sends is what the host receives: a channel is a queue of its process.
//!
//! * `dataset`: tensors, and lists of them.
//! * `channel`: queues by device and name, with a capacity.

mod channel;
mod dataset;

/// A null pointer or a value that makes no sense (`ACL_ERROR_INVALID_PARAM`).
const INVALID_PARAMETER: i32 = 100_000;
/// Nothing came in time (`ACL_ERROR_RT_QUEUE_EMPTY`).
const QUEUE_EMPTY: i32 = 207_013;
/// No room came in time (`ACL_ERROR_RT_QUEUE_FULL`).
const QUEUE_FULL: i32 = 207_014;
