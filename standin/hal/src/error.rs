//! Error codes of the driver (`drvError_t`), as far as the stand-in returns them.

/// A driver error; the number is what the C functions return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DriverError {
    /// There is no such device.
    InvalidDevice = 2,
    /// A null pointer, a size of zero or an address the driver does not know.
    InvalidValue = 3,
    /// Not a handle of the driver.
    InvalidHandle = 4,
    /// The flags name no kind of memory.
    InvalidMallocType = 5,
    /// The card is full.
    OutOfMemory = 6,
    /// The host could not provide what the card promised.
    Inner = 7,
}

/// The code a C function returns for `result`.
pub fn code(result: Result<(), DriverError>) -> i32 {
    result.map_or_else(|error| error as i32, |()| 0)
}
