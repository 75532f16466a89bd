//! The kernels of operators: names in the style of CANN's binaries, and the way a launch takes.

use standin_support::is_older_cann;
use std::ffi::{CString, c_char, c_void};

/// Tiling keys of kernels of the vector unit and of the cube unit.
const VECTOR_TILING_KEY: u64 = 8;
const CUBE_TILING_KEY: u64 = 1;

/// Which unit of the card computes an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Vectors.
    Vector,
    /// Products of matrices.
    Cube,
    /// Vectors in a kernel for both units, of which it leaves the other one alone.
    MixedVector,
    /// The processor of the card.
    AiCpu,
}

impl Unit {
    /// The unit for an operator.
    pub fn of(operator: &str) -> Self {
        let is_product =
            ["Matmul", "Mm", "Convolution", "Linear", "Attention"].iter().any(|part| operator.contains(part));
        let is_norm = ["Norm", "Softmax"].iter().any(|part| operator.contains(part));
        match (is_product, is_norm) {
            (true, _) => Self::Cube,
            (_, true) => Self::MixedVector,
            _ => Self::Vector,
        }
    }

    /// Its number in reports of tasks.
    fn task_type(self) -> u32 {
        match self {
            Self::Vector => 66,
            Self::Cube => 108,
            Self::MixedVector => 109,
            Self::AiCpu => 1,
        }
    }

    /// How names of its kernels end.
    fn suffix(self) -> &'static str {
        match self {
            Self::Cube => "_mix_aic",
            Self::MixedVector => "_mix_aiv",
            Self::Vector | Self::AiCpu => "",
        }
    }
}

/// What a kernel is given: the arguments of a launch.
#[repr(C)]
struct Arguments {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

/// `rtArgsEx_t`.
#[repr(C)]
struct ArgumentsEx {
    arguments: *const c_void,
    host_inputs: *const c_void,
    size_bytes: u32,
    rest: [u32; 3],
}

unsafe extern "C" {
    fn standinKernel(name: *const c_char, task_type: u32) -> *mut c_void;
    fn aclrtLaunchKernelWithHostArgs(
        function: *mut c_void,
        blocks: u32,
        stream: *mut c_void,
        configuration: *mut c_void,
        arguments: *mut c_void,
        argument_bytes: usize,
        placeholders: *mut c_void,
        placeholder_count: usize,
    ) -> i32;
    fn rtKernelLaunchWithHandleV2(
        handle: *mut c_void,
        tiling_key: u64,
        blocks: u32,
        arguments: *const ArgumentsEx,
        description: *mut c_void,
        stream: *mut c_void,
        configuration: *const c_void,
    ) -> i32;
}

/// 32 hexadecimal digits for a binary.
fn digits(operator: &str) -> String {
    let mix = |seed: u64| {
        operator
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(17))
    };
    format!("{:016x}{:016x}", mix(0xcbf2_9ce4_8422_2325), mix(0x9e37_79b9_7f4a_7c15))
}

/// The type of operator behind a function: `aclnnInplaceAdd` computes an `Add`.
fn operator_type(function: &str) -> &str {
    let name = function.strip_prefix("aclnn").unwrap_or(function);
    name.strip_prefix("Inplace").unwrap_or(name)
}

/// Launches the kernels of an operator; the last of them computes `function(argument)`.
pub unsafe fn launch_kernels(
    unit: Unit,
    operator: &str,
    stream: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> i32 {
    let operator = operator_type(operator);
    // SAFETY: the caller's function and argument; a kernel without a function computes nothing.
    unsafe {
        if operator.contains("Convolution") {
            // The layout of the operands is changed first.
            let nothing = Arguments { function: None, argument: std::ptr::null_mut() };
            let result = launch(Unit::Vector, "TransData", stream, nothing);
            if result != 0 {
                return result;
            }
        }
        launch(unit, operator, stream, Arguments { function: Some(function), argument })
    }
}

unsafe fn launch(unit: Unit, operator: &str, stream: *mut c_void, mut arguments: Arguments) -> i32 {
    let key = if unit == Unit::Cube { CUBE_TILING_KEY } else { VECTOR_TILING_KEY };
    let binary = format!("{operator}_{}", digits(operator));
    let size_bytes = size_of::<Arguments>();
    let pointer = (&raw mut arguments).cast::<c_void>();
    let handle = |name: String| {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: a terminated name.
        unsafe { standinKernel(name.as_ptr(), unit.task_type()) }
    };
    // SAFETY: the runtime copies the arguments during the call.
    unsafe {
        if is_older_cann() && unit != Unit::AiCpu {
            let extended = ArgumentsEx {
                arguments: pointer,
                host_inputs: std::ptr::null(),
                size_bytes: size_bytes as u32,
                rest: [0; 3],
            };
            let none = std::ptr::null_mut();
            return rtKernelLaunchWithHandleV2(handle(binary), key, 1, &raw const extended, none, stream, none);
        }
        let name = if unit == Unit::AiCpu { operator.to_owned() } else { format!("{binary}_{key}{}", unit.suffix()) };
        let none = std::ptr::null_mut();
        aclrtLaunchKernelWithHostArgs(handle(name), 1, stream, none, pointer, size_bytes, none, 0)
    }
}
