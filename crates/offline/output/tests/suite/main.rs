//! Tests of the written files, from traces made with the real trace writer.

mod contract;
mod damage;
mod finishing;
mod golden;
mod identity;
mod support;
mod watched;
