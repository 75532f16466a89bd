//! Which memory a block lives in: a numbered NPU, the host, or not known.

use std::fmt;

/// The place of a block or event. Printed the way the output files spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// An NPU by id. Driver events carry physical ids, framework events logical ones.
    Npu(u16),
    /// Host memory.
    Host,
    /// Nobody said.
    Unknown,
}

impl Device {
    /// The largest NPU id that can be stored.
    pub const LARGEST_NPU: u16 = 4093;
    const HOST_CODE: u32 = 4094;
    const UNKNOWN_CODE: u32 = 4095;

    /// Twelve-bit code used in the trace file.
    #[inline]
    pub fn code(self) -> u32 {
        match self {
            Device::Npu(id) if id <= Self::LARGEST_NPU => u32::from(id),
            Device::Host => Self::HOST_CODE,
            Device::Npu(_) | Device::Unknown => Self::UNKNOWN_CODE,
        }
    }

    /// Inverse of [`Device::code`]; codes beyond twelve bits are unknown.
    #[inline]
    pub fn from_code(code: u32) -> Self {
        match code {
            Self::HOST_CODE => Device::Host,
            code if code <= u32::from(Self::LARGEST_NPU) => Device::Npu(code as u16),
            _ => Device::Unknown,
        }
    }

    /// An NPU from an id as frameworks pass it; negative or too large ids are unknown.
    #[inline]
    pub fn from_id(id: i64) -> Self {
        match u16::try_from(id) {
            Ok(id) if id <= Self::LARGEST_NPU => Device::Npu(id),
            _ => Device::Unknown,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Npu(id) => write!(formatter, "{id}"),
            Device::Host => formatter.write_str("cpu"),
            Device::Unknown => formatter.write_str("N/A"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_round_trip() {
        for code in 0..=4095 {
            assert_eq!(Device::from_code(code).code(), code);
        }
        assert_eq!(Device::from_code(4096), Device::Unknown);
        assert_eq!(Device::Npu(5000).code(), Device::Unknown.code());
        assert_eq!(Device::from_id(-1), Device::Unknown);
        assert_eq!(Device::from_id(31), Device::Npu(31));
    }
}
