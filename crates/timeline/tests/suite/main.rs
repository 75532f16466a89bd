//! What events a recording gives, for every rule of the pass.

mod scenarios;
