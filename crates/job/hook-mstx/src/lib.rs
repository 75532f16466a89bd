//! `libascend_mstx_hook.so`: the entry of the mstx injection under a documented name.
//!
//! Libraries that embed mstx look it up in the file named by `MSTX_INJECTION_PATH`, or in the global
//! scope. The functions it connects live in the recorder.

msmemscope_hook_jump::jump_into_recorder!(InitInjectionMstx);
