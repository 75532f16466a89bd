//! Names of stacks taken in this very process through libraries built by the test, and lines of
//! Python's own code objects.

mod native;
mod python;
mod recording;
