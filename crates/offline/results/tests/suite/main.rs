//! Everything that needs recordings on disk.

mod fleet;
