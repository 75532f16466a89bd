//! `libatb_abi_0_hook.so`: preloaded for programs with an ATB of the old C++ ABI.
//!
//! It brings the recorder into the process and exports nothing: ATB reports its memory over mstx.
