//! Error codes of AscendCL that do not come from the runtime.

/// A null pointer or a value that makes no sense.
pub const INVALID_PARAMETER: i32 = 100_000;
/// `aclInit` was called twice.
pub const REPEATED_INITIALIZATION: i32 = 100_002;
/// The configuration file cannot be read.
pub const INVALID_FILE: i32 = 100_003;
/// `aclFinalize` was called twice.
pub const REPEATED_FINALIZATION: i32 = 100_037;
/// The runtime does not know the address or value.
pub const RUNTIME_INVALID_PARAMETER: i32 = 107_000;
