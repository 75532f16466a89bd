//! The vocabulary every other crate speaks: facts, pools, devices, ids. No I/O, no unsafe.
#![forbid(unsafe_code)]
