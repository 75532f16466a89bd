//! `libleaks_ascend_hal_hook.so`: the hooks of driver and runtime under a documented name.
//!
//! Users preload any of the documented libraries, in any order. The hooks live in one place, the
//! recorder; a library that only needs it would come too late in the search order, and a copy would
//! record everything twice. So this one exports the symbols and jumps.

msmemscope_hook_jump::for_each_hook!(msmemscope_hook_jump::jump_into_recorder);
msmemscope_hook_jump::jump_into_recorder!(dlsym);
