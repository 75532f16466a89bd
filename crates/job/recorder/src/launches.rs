//! The functions that launch kernels: notes when they are called, and calls one guest around them: watching looks at
//! memory there.
//!
//! Every way to launch a kernel ends in one of these functions of the runtime, so those that come before (AscendCL, its
//! implementation) need no hook. Which kernel it is is what the runtime reports inside the call, see
//! [`kernels`](crate::kernels): a launch by a function that is not hooked is recorded, too, with the time of the report.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use msmemscope_control::{LaunchObserver, Region};
use msmemscope_event::StringId;

use crate::hooks::Hook;
use crate::real::RealFunction;
use crate::{acl, errno, kernels, state, strings, thread};

const LIBRARY: &str = "libruntime.so";
/// What the runtime returns for a function it does not have.
const RESERVED_ERROR: i32 = 0x99;
const SUCCESS: i32 = 0;

static OBSERVER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether this thread is inside of a launch: launching functions may call each other.
    static IS_LAUNCHING: Cell<bool> = const { Cell::new(false) };
    /// The kernel that was reported inside of it.
    static LAUNCHED: Cell<StringId> = const { Cell::new(StringId::NONE) };
}

/// Sets the guest's function, or takes it away.
pub fn set_observer(observer: Option<LaunchObserver>) {
    let function = observer.map_or(std::ptr::null_mut(), |observer| observer as *mut c_void);
    OBSERVER.store(function, Ordering::Release);
    if observer.is_some() {
        acl::redirect_optional_functions();
    }
}

/// Whether launching functions are hooked.
pub fn are_hooked() -> bool {
    kernels::are_wanted() || !OBSERVER.load(Ordering::Relaxed).is_null()
}

/// The runtime has reported the launch of a kernel on this thread.
#[inline(always)]
pub fn note(name: StringId) {
    if !OBSERVER.load(Ordering::Relaxed).is_null() {
        LAUNCHED.set(name);
    }
}

/// Calls a launching function, and the guest before and after it.
#[inline(always)]
fn around(stream: usize, launch: impl FnOnce() -> i32) -> i32 {
    let launch = || match kernels::are_wanted() && state::records_everything() {
        true => thread::in_launch(launch),
        false => launch(),
    };
    let observer = OBSERVER.load(Ordering::Acquire);
    if observer.is_null() || IS_LAUNCHING.get() {
        return launch();
    }
    // SAFETY: only `set_observer` stores here, and what it stores has this type and stays loaded.
    observed(unsafe { std::mem::transmute::<*mut c_void, LaunchObserver>(observer) }, stream, launch)
}

#[cold]
fn observed(observer: LaunchObserver, stream: usize, launch: impl FnOnce() -> i32) -> i32 {
    let stream = stream as *mut c_void;
    // What the guest does may launch something itself; nobody is called for that.
    IS_LAUNCHING.set(true);
    // SAFETY: the guest's function takes any values.
    errno::aside(|| unsafe { observer(1, stream, Region::of(&[])) });
    LAUNCHED.set(StringId::NONE);
    let result = launch();
    let name = if result == SUCCESS { LAUNCHED.get() } else { StringId::NONE };
    errno::aside(|| {
        let mut is_told = false;
        if name.is_some() {
            strings::with_text(name, |text| {
                is_told = true;
                // SAFETY: as above; the text outlives the call.
                unsafe { observer(0, stream, Region::of(text)) };
            });
        }
        if !is_told {
            // SAFETY: as above.
            unsafe { observer(0, stream, Region::of(&[])) };
        }
    });
    IS_LAUNCHING.set(false);
    result
}

/// What the longest of these functions takes.
const MOST_ARGUMENTS: usize = 12;

#[rustfmt::skip]
type Launch = unsafe extern "C-unwind" fn(
    usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize,
) -> i32;

/// Passes a call on, with the guest called around it. `stream` says which argument that is.
#[inline(always)]
fn pass_on(real: &'static RealFunction<Launch>, arguments: [usize; MOST_ARGUMENTS], stream: usize) -> i32 {
    let Some(function) = real.function() else { return RESERVED_ERROR };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = arguments;
    // SAFETY: the runtime's function of this name takes no more than these arguments, which are those of its caller.
    let launch = || unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l) };
    around(arguments[stream], launch)
}

/// Declares hooks of functions that launch kernels: where it keeps the real one, its name, and which argument is the
/// stream. All arguments are numbers and pointers, at most twelve, and are passed on as they came; arguments that a
/// function does not have are whatever is in their places. An extent of three numbers takes the places of two arguments.
macro_rules! launch_functions {
    ($($function:ident $name:literal $stream:literal;)+) => {
        $(mod $function {
            use super::{LIBRARY, Launch, RealFunction, pass_on};

            pub static REAL: RealFunction<Launch> = RealFunction::new(LIBRARY, &[$name]);

            #[allow(clippy::too_many_arguments, reason = "as many as the longest of these functions has")]
            pub unsafe extern "C-unwind" fn hook(
                a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
                g: usize, h: usize, i: usize, j: usize, k: usize, l: usize,
            ) -> i32 {
                pass_on(&REAL, [a, b, c, d, e, f, g, h, i, j, k, l], $stream)
            }
        })+

        /// Hooks of all functions that launch kernels.
        pub static HOOKS: &[Hook] = &[$(Hook::optional($function::REAL.erased(), $function::hook as *const ())),+];
    };
}

launch_functions! {
    by_stub c"rtKernelLaunch" 5;
    by_stub_with_flag c"rtKernelLaunchWithFlag" 4;
    by_stub_with_flag_v2 c"rtKernelLaunchWithFlagV2" 4;
    by_handle c"rtKernelLaunchWithHandle" 5;
    by_handle_v2 c"rtKernelLaunchWithHandleV2" 5;
    on_vector_core c"rtVectorCoreKernelLaunch" 4;
    on_vector_core_by_handle c"rtVectorCoreKernelLaunchWithHandle" 5;
    by_function c"rtLaunchKernelByFuncHandle" 3;
    by_function_v2 c"rtLaunchKernelByFuncHandleV2" 3;
    by_function_v3 c"rtLaunchKernelByFuncHandleV3" 3;
    with_listed_arguments c"rtLaunchKernelWithArgsArray" 2;
    in_threads_with_host_arguments c"rtLaunchSIMTKernelWithHostArgs" 6;
    in_threads_with_listed_arguments c"rtLaunchSIMTKernelWithArgsArray" 6;
    with_configuration c"rtsLaunchKernelWithConfig" 2;
    with_device_arguments c"rtsLaunchKernelWithDevArgs" 2;
    with_host_arguments c"rtsLaunchKernelWithHostArgs" 2;
    on_card_processor c"rtsLaunchCpuKernel" 2;
    on_card_processor_with_flag c"rtCpuKernelLaunchWithFlag" 5;
    on_card_processor_by_name c"rtAicpuKernelLaunchWithFlag" 4;
    on_card_processor_with_arguments c"rtAicpuKernelLaunchExWithArgs" 5;
    extended c"rtKernelLaunchEx" 3;
    several c"rtFftsPlusTaskLaunch" 1;
    several_with_flag c"rtFftsPlusTaskLaunchWithFlag" 1;
}
