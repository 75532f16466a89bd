//! Error codes of the runtime, which are those that AscendCL returns.

/// A runtime error; the number is what the C functions return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum RuntimeError {
    /// A null pointer or a size that makes no sense.
    InvalidParameter = 107_000,
    /// There is no such device.
    InvalidDevice = 107_001,
    /// The thread has no device.
    NoContext = 107_002,
    /// Not a stream of this process.
    InvalidStream = 107_003,
    /// Not an event of this process.
    InvalidEvent = 107_004,
    /// The wait took longer than asked for.
    Timeout = 107_019,
    /// The card is full.
    OutOfMemory = 207_001,
    /// The driver refused.
    Driver = 507_899,
}

/// The code a C function returns for `result`.
pub fn code(result: Result<(), RuntimeError>) -> i32 {
    result.map_or_else(|error| error as i32, |()| 0)
}

/// What a driver code means here.
pub fn from_driver(driver_code: i32) -> Result<(), RuntimeError> {
    match driver_code {
        0 => Ok(()),
        2 => Err(RuntimeError::InvalidDevice),
        3 | 4 | 8 => Err(RuntimeError::InvalidParameter),
        6 => Err(RuntimeError::OutOfMemory),
        _ => Err(RuntimeError::Driver),
    }
}
