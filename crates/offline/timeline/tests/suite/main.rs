//! What events a recording gives, for every rule of the pass.

mod model;
mod owners;
mod scenarios;
mod support;
