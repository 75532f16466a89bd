//! The two C functions of every operator, from one line of declaration.

/// Declares operators: `aclnnName(argument: Type, ...) => computation;`. The computation is an expression that uses the
/// arguments; it runs on the worker of a stream.
macro_rules! operators {
    ($($declaration:tt)*) => {
        crate::macros::launched_operators! { launch; $($declaration)* }
    };
}

/// Like `operators`, for those that the caller waits for.
macro_rules! sized_operators {
    ($($declaration:tt)*) => {
        crate::macros::launched_operators! { launch_and_wait; $($declaration)* }
    };
}

macro_rules! launched_operators {
    ($launch:ident; $($name:ident($($argument:ident: $type:ty),* $(,)?) => $body:expr;)*) => {
        $(
            const _: () = {
                use crate::argument::Argument;
                use crate::executor::{Executor, Work, prepare};
                use std::ffi::c_void;

                const NAME: &str = stringify!($name);

                #[unsafe(export_name = concat!(stringify!($name), "GetWorkspaceSize"))]
                unsafe extern "C" fn get_workspace_size(
                    $($argument: <$type as Argument>::Raw,)*
                    workspace_bytes: *mut u64,
                    executor: *mut *mut Executor,
                ) -> i32 {
                    // SAFETY: callers pass null or valid objects of this library, and pointers to write to.
                    unsafe {
                        let copied = (|| Some(($(<$type as Argument>::from_raw($argument)?,)*)))();
                        let operand_bytes =
                            copied.as_ref().map_or(0, |($($argument,)*)| 0 $(.max($argument.tensor_bytes()))*);
                        let work = copied.map(|($($argument,)*)| Box::new(move || { $body; }) as Work);
                        prepare(NAME, work, operand_bytes, workspace_bytes, executor)
                    }
                }

                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name(
                    _workspace: *mut c_void,
                    _workspace_bytes: u64,
                    executor: *mut Executor,
                    stream: *mut c_void,
                ) -> i32 {
                    // SAFETY: the executor comes from the first phase.
                    unsafe { crate::executor::$launch(NAME, executor, stream) }
                }
            };
        )*
    };
}

pub(crate) use {launched_operators, operators, sized_operators};
