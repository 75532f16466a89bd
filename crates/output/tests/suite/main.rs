//! Tests of the written files, from traces made with the real trace writer.

mod finishing;
mod golden;
mod support;
