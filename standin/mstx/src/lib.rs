//! Stand-in for CANN's `libms_tools_ext.so`: the mstx functions as a library.
//!
//! A tool is looked for at the first call: `InitInjectionMstx` of the library that `MSTX_INJECTION_PATH` names, else
//! of the program's global scope. It receives tables of function-pointer slots to fill in. Every call is written to
//! the ground-truth log, whether a tool listens or not.

mod exports;
mod injection;
mod log;
mod types;
