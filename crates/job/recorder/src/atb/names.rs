//! What ATB calls types of elements and arrangements of tensors: operators and kernels count them alike and spell them
//! differently.

/// One spelling of all names.
pub struct Names {
    types: &'static [(i32, &'static str)],
    formats: &'static [(i32, &'static str)],
    unknown_type: &'static str,
    unknown_format: &'static str,
}

macro_rules! spelled {
    ($prefix:literal: $($code:literal $name:literal),+) => { &[$(($code, concat!($prefix, $name))),+] };
}

impl Names {
    /// As operators spell them.
    pub const OF_OPERATORS: Names = Names {
        types: spelled!("ACL_": 0 "FLOAT", 1 "FLOAT16", 2 "INT8", 3 "INT32", 4 "UINT8", 6 "INT16", 7 "UINT16", 8 "UINT32",
            9 "INT64", 10 "UINT64", 11 "DOUBLE", 12 "BOOL", 13 "STRING", 16 "COMPLEX64", 17 "COMPLEX128", 27 "BF16",
            29 "INT4", 30 "UINT1", 33 "COMPLEX32"),
        formats: spelled!("ACL_": 0 "FORMAT_NCHW", 1 "FORMAT_NHWC", 2 "FORMAT_ND", 3 "FORMAT_NC1HWC0",
            4 "FORMAT_FRACTAL_Z", 12 "FORMAT_NC1HWC0_C04", 16 "FORMAT_HWCN", 27 "FORMAT_NDHWC", 29 "FORMAT_FRACTAL_NZ",
            30 "FORMAT_NCDHW", 32 "FORMAT_NDC1HWC0", 33 "FRACTAL_Z_3D", 35 "FORMAT_NC", 47 "FORMAT_NCL"),
        unknown_type: "ACL_DT_UNDEFINED",
        unknown_format: "ACL_FORMAT_UNDEFINED",
    };

    /// As kernels spell them.
    pub const OF_KERNELS: Names = Names {
        types: spelled!("TENSOR_DTYPE_": 0 "FLOAT", 1 "FLOAT16", 2 "INT8", 3 "INT32", 4 "UINT8", 6 "INT16", 7 "UINT16",
            8 "UINT32", 9 "INT64", 10 "UINT64", 11 "DOUBLE", 12 "BOOL", 13 "STRING", 16 "COMPLEX64", 17 "COMPLEX128",
            27 "BF16"),
        formats: spelled!("TENSOR_FORMAT_": 0 "NCHW", 1 "NHWC", 2 "ND", 3 "NC1HWC0", 4 "FRACTAL_Z", 12 "NC1HWC0_C04",
            16 "HWCN", 27 "NDHWC", 29 "FRACTAL_NZ", 30 "NCDHW", 32 "NDC1HWC0", 33 "FRACTAL_Z_3D"),
        unknown_type: "TENSOR_DTYPE_UNDEFINED",
        unknown_format: "TENSOR_FORMAT_UNDEFINED",
    };

    /// The name of a type of elements.
    pub fn element_type(&self, code: i32) -> &'static [u8] {
        named(self.types, code).unwrap_or(self.unknown_type).as_bytes()
    }

    /// The name of an arrangement.
    pub fn format(&self, code: i32) -> &'static [u8] {
        named(self.formats, code).unwrap_or(self.unknown_format).as_bytes()
    }
}

fn named(names: &'static [(i32, &'static str)], code: i32) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_kernels_have_their_spellings() {
        assert_eq!(Names::OF_OPERATORS.element_type(1), b"ACL_FLOAT16");
        assert_eq!(Names::OF_OPERATORS.element_type(40), b"ACL_DT_UNDEFINED");
        assert_eq!(Names::OF_OPERATORS.format(2), b"ACL_FORMAT_ND");
        assert_eq!(Names::OF_KERNELS.element_type(27), b"TENSOR_DTYPE_BF16");
        assert_eq!(Names::OF_KERNELS.format(-1), b"TENSOR_FORMAT_UNDEFINED");
    }
}
