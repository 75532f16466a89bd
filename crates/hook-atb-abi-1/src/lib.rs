//! `libatb_abi_1_hook.so`: preloaded for programs with an ATB of the new C++ ABI.
//!
//! It brings the recorder into the process and exports nothing: ATB reports its memory over mstx.
