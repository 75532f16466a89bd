//! `libatb_abi_0_hook.so`: hooks of an ATB with the old ABI of the C++ library, under their mangled names.
//!
//! They jump into the recorder, which knows both ABIs: what an operation is decides the libatb that runs it, not which
//! of these libraries was preloaded first.

msmemscope_hook_jump::for_each_atb_hook!(msmemscope_hook_jump::jump_into_recorder, both);
msmemscope_hook_jump::for_each_atb_hook!(msmemscope_hook_jump::jump_into_recorder, abi_0);
