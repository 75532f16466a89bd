//! Tests of the trace file from the outside: what is written is what is read, whatever happens to the file.

mod appendix;
mod bombs;
mod catching_up;
mod compaction;
mod facts;
mod flight_recorder;
mod hazards;
mod order;
mod recovery;
mod support;
