//! Stand-in for CANN's `libopapi.so`: the operators that frameworks call, in two phases each.
//!
//! `aclnnNameGetWorkspaceSize` copies all descriptions of operands into an executor, because callers destroy them right
//! after the launch; `aclnnName` gives the executor to a stream, whose worker computes it later. Operators that are not
//! computed exist as well, do nothing, and say so once.

mod argument;
mod executor;
mod initialization;
mod kernel;
mod macros;
mod not_computed;
mod objects;
mod operators;
