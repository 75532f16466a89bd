//! Tests of the crate as its users see it.

mod handover;
