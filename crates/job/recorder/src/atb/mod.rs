//! Operators and kernels of ATB: hooks of functions inside of libatb.so, which the thin libraries export by their
//! mangled names.
//!
//! Every operator ends in `Runner::Execute`, which is hooked. Before each of its kernels, and after it, a runner calls
//! `StoreUtil::SaveLaunchParam` if functions of the class `Probe` say that somebody wants tensors saved; we say so, look
//! at the tensors and save nothing. What the job itself wants saved is saved.
//!
//! * [`library`]: which libatb a call comes from, and its functions.
//! * [`layout`]: where things are in its objects; what does not look like that is not read.
//! * [`text`]: strings of both ABIs of the C++ library.
//! * [`names`]: what types of elements and arrangements are called.
//!
//! Nothing is held across the real call, so exceptions and long jumps may pass.

mod layout;
mod library;
mod names;
mod text;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use msmemscope_control::{OperatorFact, OperatorObserver, Region, TensorFact};
use msmemscope_event::{AccessKind, Device, Fact, Framework, KernelPhase, Severity, StringId};
use msmemscope_hook_jump::for_each_atb_hook;
use msmemscope_settings::{EventSet, LevelSet, Settings};
use msmemscope_trace::codec::LARGEST_TEXT_BYTES;

use self::layout::{Layout, Pack, Tensor};
use self::library::Library;
use self::names::Names;
use self::text::Abi;
use crate::import_tables::Redirection;
use crate::real::RealFunction;
use crate::{acl, errno, message, native_watch, process, state, strings, thread};

/// What ATB returns for something wrong inside of it: nobody has the function that was called.
const INTERNAL_ERROR: i32 = 3;

const OPERATORS: u32 = 1;
const ACCESSES: u32 = 2;
const KERNELS: u32 = 4;
const OBSERVED: u32 = 8;
const WATCHED: u32 = 16;

/// Functions that give the tensors of a kernel; alike for both ABIs.
type TensorList = unsafe extern "C-unwind" fn(*const c_void) -> *const c_void;

static KERNEL_INPUTS: RealFunction<TensorList> =
    RealFunction::new("libmki.so", &[c"_ZN3Mki11LaunchParam12GetInTensorsEv"]);
static KERNEL_OUTPUTS: RealFunction<TensorList> =
    RealFunction::new("libmki.so", &[c"_ZN3Mki11LaunchParam13GetOutTensorsEv"]);

/// What was asked for, as bits.
static WANTED: AtomicU32 = AtomicU32::new(0);
static OBSERVER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the job has tensors saved itself.
static JOB_SAVES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether questions are answered as if nobody but the job were asking.
    static IS_JOBS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Takes over settings.
pub fn configure(settings: &Settings) {
    let has = |event| settings.events.collected.contains(event);
    let bit = |is_wanted: bool, bit| if is_wanted { bit } else { 0 };
    let launches_at = |level| has(EventSet::LAUNCH) && settings.level.contains(level);
    let wanted = bit(launches_at(LevelSet::OP), OPERATORS)
        | bit(has(EventSet::ACCESS), ACCESSES)
        | bit(launches_at(LevelSet::KERNEL), KERNELS)
        | bit(settings.watch.is_some(), WATCHED);
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Sets a guest's function that is called around operators, or takes it away.
pub fn set_observer(observer: Option<OperatorObserver>) {
    let function = observer.map_or(std::ptr::null_mut(), |observer| observer as *mut c_void);
    OBSERVER.store(function, Ordering::Release);
}

/// What is wanted now, as bits.
#[inline(always)]
fn wanted() -> u32 {
    if !state::records_everything() {
        return 0;
    }
    let is_observed = !OBSERVER.load(Ordering::Relaxed).is_null();
    WANTED.load(Ordering::Relaxed) | if is_observed { OBSERVED } else { 0 }
}

/// Says what cannot be seen, to people and in the recording.
#[cold]
pub fn say(text: &str) {
    message::say(text);
    if process::existing().is_some() {
        thread::record_now(&Fact::Message { severity: Severity::Warning, text: text.as_bytes() });
    }
}

/// `Status Runner::Execute(RunnerVariantPack &)`.
unsafe extern "C-unwind" fn execute(runner: *mut c_void, pack: *mut c_void, caller: usize) -> i32 {
    let Some(library) = library::of_call(caller, runner) else { return INTERNAL_ERROR };
    let wanted = wanted();
    if wanted == 0 {
        // SAFETY: the library's function of this name has this signature; arguments are the caller's.
        return unsafe { (library.execute)(runner, pack) };
    }
    // SAFETY: as above.
    unsafe { seen_execute(library, runner, pack, wanted) }
}

#[inline(never)]
unsafe fn seen_execute(library: &'static Library, runner: *mut c_void, pack: *mut c_void, mut wanted: u32) -> i32 {
    if wanted & (WATCHED | OBSERVED) == WATCHED {
        native_watch::invite();
        wanted = self::wanted();
    }
    // SAFETY: arguments of the caller.
    let operator = errno::preserved(|| unsafe { begin(library, runner, pack, wanted) });
    // SAFETY: the library's function of this name has this signature; arguments are the caller's.
    let result = unsafe { (library.execute)(runner, pack) };
    if let Some((name, device)) = operator {
        if wanted & OPERATORS != 0 && state::records_everything() {
            let framework = Framework::Atb;
            thread::record_own_now(|| Fact::OperatorEnd { framework, device, name, detail: StringId::NONE });
        }
        if wanted & OBSERVED != 0 {
            // SAFETY: as above.
            errno::preserved(|| unsafe { tell_observer(library, runner, pack, device, false) });
        }
    }
    result
}

/// Writes down that an operator starts; gives its name and device. Nothing if the library does not tell them.
unsafe fn begin(
    library: &'static Library,
    runner: *mut c_void,
    pack: *mut c_void,
    wanted: u32,
) -> Option<(StringId, Device)> {
    let Some(getters) = &library.getters else {
        library.say_unseen(
            "ATB's operators are not recorded: this libatb.so does not tell their names (it lacks \
             atb::Runner::GetOperationName or GetSaveTensorDir); they run as always, and ATB's memory is recorded",
        );
        return None;
    };
    if wanted & (KERNELS | ACCESSES) != 0 && !library.tells_kernels {
        library.say_unseen(
            "ATB's kernels and their tensors are not recorded: this libatb.so does not tell them (it lacks \
             atb::StoreUtil::SaveLaunchParam or a question of atb::Probe); they run as always, and ATB's operators are \
             recorded",
        );
    }
    // SAFETY: a runner of this library.
    let name = unsafe { getters.with_operation_name(runner, strings::intern) };
    let device = acl::current_device();
    // SAFETY: the pack that the runner was given.
    let pack_seen = unsafe { Pack::read(pack) };
    if pack_seen.is_none() {
        library.say_unseen(
            "tensors of ATB's operators are not recorded: this libatb.so arranges them in a way this version does not \
             know; the operators run as always",
        );
    }
    if wanted & OPERATORS != 0 {
        let (workspace_address, workspace_bytes) = pack_seen.as_ref().map_or((0, 0), Pack::workspace);
        let framework = Framework::Atb;
        let record = |path: &[u8]| {
            let path = &path[..path.len().min(LARGEST_TEXT_BYTES)];
            thread::record_own_now(|| Fact::PlacedOperatorBegin {
                framework,
                device,
                name,
                workspace_address,
                workspace_bytes,
                path,
            });
        };
        // SAFETY: a runner of this library.
        unsafe { getters.with_path(runner, record) };
    }
    if wanted & ACCESSES != 0
        && let Some(pack) = &pack_seen
    {
        record_accesses(pack.inputs(), pack.outputs(), name, device, &Names::OF_OPERATORS);
    }
    if wanted & OBSERVED != 0 {
        // SAFETY: as above.
        unsafe { tell_observer(library, runner, pack, device, true) };
    }
    Some((name, device))
}

/// Writes down which tensors an operator or kernel touches: what goes in may be written as well.
fn record_accesses<'a>(
    inputs: impl Iterator<Item = Tensor<'a>>,
    outputs: impl Iterator<Item = Tensor<'a>>,
    operator: StringId,
    device: Device,
    names: &Names,
) {
    let inputs = inputs.map(|tensor| (AccessKind::Unknown, 0, tensor));
    let outputs = outputs.zip(1..).map(|(tensor, position)| (AccessKind::Write, position, tensor));
    for (kind, output_position, tensor) in inputs.chain(outputs).filter(|(_, _, tensor)| tensor.address != 0) {
        thread::record_access_now(&Fact::Access {
            kind,
            framework: Framework::Atb,
            device,
            operator,
            address: tensor.address,
            size_bytes: tensor.size_bytes,
            element_type: strings::intern(names.element_type(tensor.element_type)),
            shape: strings::intern(tensor.shape().bytes()),
            format: strings::intern(names.format(tensor.format)),
            output_position,
        });
    }
}

/// Calls the guest before or after an operator.
#[cold]
unsafe fn tell_observer(library: &Library, runner: *mut c_void, pack: *mut c_void, device: Device, begins: bool) {
    let observer = OBSERVER.load(Ordering::Acquire);
    let Some(getters) = library.getters.as_ref().filter(|_| !observer.is_null()) else { return };
    // SAFETY: only `set_observer` stores here, and what it stores has this type and stays loaded.
    let observer = unsafe { std::mem::transmute::<*mut c_void, OperatorObserver>(observer) };
    // SAFETY: the pack that the runner was given.
    let pack = unsafe { Pack::read(pack) };
    let outputs = pack.iter().flat_map(Pack::outputs);
    let outputs: Vec<TensorFact> =
        outputs.map(|tensor| TensorFact { address: tensor.address, size_bytes: tensor.size_bytes }).collect();
    let tell = |path: &[u8]| {
        let fact = OperatorFact {
            framework: Framework::Atb as u32,
            device: device.code(),
            name: Region::of(path),
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
        };
        // SAFETY: the fact and what it points to outlive the call.
        unsafe { observer(u32::from(begins), &fact) };
    };
    // SAFETY: a runner of this library.
    unsafe { getters.with_path(runner, tell) };
}

/// What a hook of a question answers: yes if something is wanted that needs it, else what it answers without us.
#[inline(always)]
fn answer(bits: u32, real: impl FnOnce() -> bool) -> bool {
    (wanted() & bits != 0 && !IS_JOBS_OWN.get()) || real()
}

/// `bool Probe::IsSaveTensorDesc()`: paths are made.
unsafe extern "C-unwind" fn is_save_tensor_desc(caller: usize) -> bool {
    // SAFETY: the function of this name has this signature.
    answer(u32::MAX, || library::at(caller).and_then(|library| library.desc).is_some_and(|real| unsafe { real() }))
}

/// `bool Probe::IsSaveTensorBefore()`: kernels are told before they start.
unsafe extern "C-unwind" fn is_save_tensor_before(caller: usize) -> bool {
    // SAFETY: as above.
    let real = || library::at(caller).and_then(|library| library.before).is_some_and(|real| unsafe { real() });
    answer(KERNELS | ACCESSES, real)
}

/// `bool Probe::IsSaveTensorAfter()`: kernels are told when they were launched.
unsafe extern "C-unwind" fn is_save_tensor_after(caller: usize) -> bool {
    // SAFETY: as above.
    let real = || library::at(caller).and_then(|library| library.after).is_some_and(|real| unsafe { real() });
    answer(KERNELS | ACCESSES, real)
}

/// `bool Probe::IsExecuteCountInRange(uint64_t)`: in all calls.
unsafe extern "C-unwind" fn is_execute_count_in_range(count: u64, caller: usize) -> bool {
    // SAFETY: as above.
    let real = || library::at(caller).and_then(|library| library.in_range).is_some_and(|real| unsafe { real(count) });
    answer(KERNELS | ACCESSES, real)
}

/// `bool Probe::IsTensorNeedSave(const std::vector<int64_t> &, const std::string &)`: of all operators.
fn is_tensor_need_save(ids: *const c_void, name: *const c_void, caller: usize) -> bool {
    let real = library::at(caller).and_then(|library| library.need_save);
    // SAFETY: the function of this name has this signature; arguments are the caller's.
    let is_jobs = real.is_some_and(|real| unsafe { real(ids, name) });
    if is_jobs {
        JOB_SAVES.store(true, Ordering::Relaxed);
    }
    is_jobs || answer(KERNELS | ACCESSES, || false)
}

unsafe extern "C-unwind" fn is_tensor_need_save_abi_0(ids: *const c_void, name: *const c_void, caller: usize) -> bool {
    is_tensor_need_save(ids, name, caller)
}

unsafe extern "C-unwind" fn is_tensor_need_save_abi_1(ids: *const c_void, name: *const c_void, caller: usize) -> bool {
    is_tensor_need_save(ids, name, caller)
}

/// `bool Runner::IsSaveTensor() const`: whether the tensors of a whole operator are saved. What we want is seen without
/// that.
unsafe extern "C-unwind" fn is_save_tensor(runner: *const c_void, caller: usize) -> bool {
    // SAFETY: the function of this name has this signature; the argument is the caller's.
    let real = || library::at(caller).and_then(|library| library.is_save).is_some_and(|real| unsafe { real(runner) });
    if wanted() == 0 {
        return real();
    }
    if !JOB_SAVES.load(Ordering::Relaxed) {
        return false;
    }
    let before = IS_JOBS_OWN.replace(true);
    let is_jobs = real();
    IS_JOBS_OWN.set(before);
    is_jobs
}

/// `void StoreUtil::SaveLaunchParam(void *, const Mki::LaunchParam &, const std::string &)`.
unsafe fn save_launch_param(
    stream: *mut c_void,
    parameters: *const c_void,
    directory: *const c_void,
    caller: usize,
    abi: Abi,
) {
    let library = library::at(caller);
    // SAFETY: a string of the caller.
    let path = unsafe { text::borrowed(abi, directory) };
    let before = path.strip_suffix(b"/before");
    let kernel = before.or_else(|| path.strip_suffix(b"/after"));
    let wanted = wanted() & (KERNELS | ACCESSES);
    if let (Some(kernel), true) = (kernel, wanted != 0) {
        // SAFETY: tensors of the caller.
        errno::preserved(|| unsafe { see_kernel(library, kernel, before.is_some(), parameters, wanted) });
    }
    let Some(library) = library else { return };
    let asked = if before.is_some() { library.before } else { library.after };
    // SAFETY: the function of this name has this signature.
    let is_jobs = wanted == 0 || JOB_SAVES.load(Ordering::Relaxed) && asked.is_some_and(|real| unsafe { real() });
    if let Some(real) = library.save_launch_param(abi).filter(|_| is_jobs) {
        // SAFETY: the function of this name has this signature; arguments are the caller's.
        unsafe { real(stream, parameters, directory) };
    }
}

/// Writes down that a kernel starts or was launched, and what it touches.
unsafe fn see_kernel(
    library: Option<&'static Library>,
    path: &[u8],
    starts: bool,
    parameters: *const c_void,
    wanted: u32,
) {
    let path = &path[..path.len().min(LARGEST_TEXT_BYTES)];
    let name = strings::intern(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path));
    let device = acl::current_device();
    if wanted & KERNELS != 0 {
        let phase = if starts { KernelPhase::Start } else { KernelPhase::End };
        thread::record_own_now(|| Fact::PlacedKernel { phase, device, name, path });
    }
    if wanted & ACCESSES == 0 || !starts {
        return;
    }
    let say_unseen = |text| library.into_iter().for_each(|library| library.say_unseen(text));
    let (Some(inputs), Some(outputs)) = (KERNEL_INPUTS.function(), KERNEL_OUTPUTS.function()) else {
        return say_unseen(
            "tensors of ATB's kernels are not recorded: nobody tells them (Mki::LaunchParam::GetInTensors or GetOutTensors \
             is missing); the kernels run as always",
        );
    };
    // SAFETY: parameters of the caller; both functions give a list inside of them.
    let lists = unsafe { (Layout::kernel_tensors(inputs(parameters)), Layout::kernel_tensors(outputs(parameters))) };
    if let (Some(inputs), Some(outputs)) = lists {
        record_accesses(inputs, outputs, name, device, &Names::OF_KERNELS);
    } else {
        say_unseen(
            "tensors of ATB's kernels are not recorded: this libatb.so arranges them in a way this version does not know; \
             the kernels run as always",
        );
    }
}

unsafe extern "C-unwind" fn save_launch_param_abi_0(
    stream: *mut c_void,
    parameters: *const c_void,
    directory: *const c_void,
    caller: usize,
) {
    // SAFETY: arguments of the caller.
    unsafe { save_launch_param(stream, parameters, directory, caller, Abi::Old) }
}

unsafe extern "C-unwind" fn save_launch_param_abi_1(
    stream: *mut c_void,
    parameters: *const c_void,
    directory: *const c_void,
    caller: usize,
) {
    // SAFETY: arguments of the caller.
    unsafe { save_launch_param(stream, parameters, directory, caller, Abi::New) }
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump_with_caller {
    (first, $body:path) => {
        std::arch::naked_asm!("mov rdi, [rsp]", "jmp {body}", body = sym $body)
    };
    (second, $body:path) => {
        std::arch::naked_asm!("mov rsi, [rsp]", "jmp {body}", body = sym $body)
    };
    (third, $body:path) => {
        std::arch::naked_asm!("mov rdx, [rsp]", "jmp {body}", body = sym $body)
    };
    (fourth, $body:path) => {
        std::arch::naked_asm!("mov rcx, [rsp]", "jmp {body}", body = sym $body)
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump_with_caller {
    (first, $body:path) => {
        std::arch::naked_asm!("mov x0, x30", "b {body}", body = sym $body)
    };
    (second, $body:path) => {
        std::arch::naked_asm!("mov x1, x30", "b {body}", body = sym $body)
    };
    (third, $body:path) => {
        std::arch::naked_asm!("mov x2, x30", "b {body}", body = sym $body)
    };
    (fourth, $body:path) => {
        std::arch::naked_asm!("mov x3, x30", "b {body}", body = sym $body)
    };
}

/// Makes the entries of hooks, behind which the address of the caller is one more argument, and a list of them.
macro_rules! make_entries {
    ($($name:ident = $body:ident, $position:ident;)+) => {
        $(
            #[allow(non_snake_case, reason = "the names are given")]
            mod $name {
                #[cfg_attr(not(test), unsafe(export_name = concat!("msmemscope_entry_", stringify!($name))))]
                #[unsafe(naked)]
                pub unsafe extern "C" fn entry() {
                    jump_with_caller!($position, super::super::$body)
                }
            }
        )+

        /// Names of the hooks with their entries.
        pub const ENTRIES: &[(&std::ffi::CStr, unsafe extern "C" fn())] =
            &[$((crate::hooks::c_name(concat!(stringify!($name), "\0")), $name::entry)),+];
    };
}

mod both {
    super::for_each_atb_hook!(make_entries, both);
}

mod abi_0 {
    super::for_each_atb_hook!(make_entries, abi_0);
}

mod abi_1 {
    super::for_each_atb_hook!(make_entries, abi_1);
}

/// The hooks, for a libatb that was loaded before the thin libraries, or without them.
pub fn redirections() -> Vec<Redirection<'static>> {
    let entries = [both::ENTRIES, abi_0::ENTRIES, abi_1::ENTRIES];
    let redirection = |(name, entry): &(&'static std::ffi::CStr, unsafe extern "C" fn())| Redirection {
        name,
        replacement: *entry as *const c_void,
    };
    if library::is_loaded() {
        entries.iter().flat_map(|entries| entries.iter()).map(redirection).collect()
    } else {
        Vec::new()
    }
}

/// A libatb reports its memory: if its operators cannot be seen, that is said.
#[cold]
pub fn pool_reported() {
    if WANTED.load(Ordering::Relaxed) != 0 && state::records_everything() {
        errno::aside(library::say_what_is_missing);
    }
}
