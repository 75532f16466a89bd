//! `libleaks_ascend_hal_hook.so`: the hooks of driver and runtime under a documented name.
//!
//! Users preload any of the documented libraries, in any order. The hooks live in one place, the
//! recorder; a library that only needs it would come too late in the search order, and a copy would
//! record everything twice. So this one exports the symbols and jumps.

msmemscope_hook_jump::jump_into_recorder! {
    halMemAlloc => msmemscope_entry_halMemAlloc;
    halMemFree => msmemscope_entry_halMemFree;
    halMemCreate => msmemscope_entry_halMemCreate;
    halMemRelease => msmemscope_entry_halMemRelease;
    aclInit => msmemscope_entry_aclInit;
    aclFinalize => msmemscope_entry_aclFinalize;
    aclrtSetDevice => msmemscope_entry_aclrtSetDevice;
    aclrtHostUnregister => msmemscope_entry_aclrtHostUnregister;
    dlsym => msmemscope_entry_dlsym;
}
