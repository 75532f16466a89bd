//! Operators that exist without being computed. The first phase must not touch its arguments, whose number and types it
//! does not know: callers have set workspace and executor to zero before.

use crate::executor::{launch_nothing, prepare_nothing};
use std::ffi::c_void;

macro_rules! not_computed {
    ($($name:ident $get_workspace_size:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $get_workspace_size() -> i32 {
                prepare_nothing(stringify!($name))
            }

            #[unsafe(no_mangle)]
            extern "C" fn $name(
                _workspace: *mut c_void,
                _workspace_bytes: u64,
                _executor: *mut c_void,
                stream: *mut c_void,
            ) -> i32 {
                launch_nothing(stringify!($name), stream)
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/not_computed.rs"));
