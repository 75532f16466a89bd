//! The libatb.so that a call comes from, and its functions.
//!
//! Several may be in a process, of both ABIs. Which one a call belongs to is told by the address it comes from, else by
//! the class of the runner. What is known of a library is found once and stays; the library is kept loaded while we know
//! its functions, as others in [`real`].

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::say;
use super::text::{Abi, Text};
use crate::elf::{self, Module};
use crate::{errno, real};

/// Functions of libatb that are called.
type Execute = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> i32;
type Question = unsafe extern "C-unwind" fn() -> bool;
type CountQuestion = unsafe extern "C-unwind" fn(u64) -> bool;
type RunnerQuestion = unsafe extern "C-unwind" fn(*const c_void) -> bool;
type SaveQuestion = unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> bool;
type SaveLaunchParam = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void);

const NAME: &str = "libatb.so";
const EXECUTE: &CStr = c"_ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE";
const IS_SAVE: &CStr = c"_ZNK3atb6Runner12IsSaveTensorEv";
const DESC: &CStr = c"_ZN3atb5Probe16IsSaveTensorDescEv";
const BEFORE: &CStr = c"_ZN3atb5Probe18IsSaveTensorBeforeEv";
const AFTER: &CStr = c"_ZN3atb5Probe17IsSaveTensorAfterEv";
const IN_RANGE: &CStr = c"_ZN3atb5Probe21IsExecuteCountInRangeEm";
/// Names that differ between the ABIs: the old one, then the new one.
const OPERATION_NAME: [&CStr; 2] =
    [c"_ZNK3atb6Runner16GetOperationNameEv", c"_ZNK3atb6Runner16GetOperationNameB5cxx11Ev"];
const SAVE_TENSOR_DIR: [&CStr; 2] =
    [c"_ZNK3atb6Runner16GetSaveTensorDirEv", c"_ZNK3atb6Runner16GetSaveTensorDirB5cxx11Ev"];
const SAVE_LAUNCH_PARAM: [&CStr; 2] = [
    c"_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs",
    c"_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
];
const NEED_SAVE: [&CStr; 2] = [
    c"_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs",
    c"_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
];

/// How many libraries are told apart.
const MOST_LIBRARIES: usize = 8;

static LIBRARIES: [AtomicPtr<Library>; MOST_LIBRARIES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_LIBRARIES];

thread_local! {
    /// Where the last call of this thread came from, and whose it was.
    static LATEST: Cell<(usize, *const Library)> = const { Cell::new((0, std::ptr::null())) };
}

/// Functions that tell what an operator is called.
pub struct Getters {
    abi: Abi,
    destructor: unsafe extern "C-unwind" fn(*mut c_void),
    operation_name: usize,
    save_tensor_dir: usize,
}

impl Getters {
    /// Calls `take` with the name of the operator that a runner executes.
    ///
    /// # Safety
    /// A runner of the library.
    pub unsafe fn with_operation_name<R>(&self, runner: *const c_void, take: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: promised by the caller.
        unsafe { Text::with(self.abi, self.destructor, self.operation_name as *const c_void, runner, take) }
    }

    /// Calls `take` with where tensors of the operator would be saved: its path.
    ///
    /// # Safety
    /// A runner of the library.
    pub unsafe fn with_path<R>(&self, runner: *const c_void, take: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: promised by the caller.
        unsafe { Text::with(self.abi, self.destructor, self.save_tensor_dir as *const c_void, runner, take) }
    }
}

/// A libatb and its functions.
pub struct Library {
    addresses: Range<usize>,
    /// Whether its functions may be called: it is kept loaded.
    is_kept: AtomicBool,
    /// Whether it was said what of it cannot be seen.
    is_told: AtomicBool,
    /// `Runner::Execute`.
    pub execute: Execute,
    /// What tells names; nothing if it lacks one of them.
    pub getters: Option<Getters>,
    /// Whether it has all functions by which it tells of kernels.
    pub tells_kernels: bool,
    /// `Probe::IsSaveTensorDesc` and the other questions, as the job would have them answered.
    pub desc: Option<Question>,
    /// As above.
    pub before: Option<Question>,
    /// As above.
    pub after: Option<Question>,
    /// As above.
    pub in_range: Option<CountQuestion>,
    /// As above.
    pub need_save: Option<SaveQuestion>,
    /// `Runner::IsSaveTensor`.
    pub is_save: Option<RunnerQuestion>,
    save_launch_param: [Option<SaveLaunchParam>; 2],
}

/// What a module that is a libatb exports itself.
struct Exports {
    addresses: Range<usize>,
    module_index: usize,
    execute: usize,
    is_save: Option<usize>,
    questions: [Option<usize>; 4],
    need_save: Option<usize>,
    save_launch_param: [Option<usize>; 2],
    getters: Option<(Abi, usize, usize)>,
}

/// A function as what the caller knows it to be.
macro_rules! function {
    ($address:expr, $kind:ty) => {
        // SAFETY: a function of this name has this signature.
        ($address).map(|address: usize| unsafe { std::mem::transmute::<usize, $kind>(address) })
    };
}

impl Exports {
    fn of(module: &Module<'_>) -> Option<Self> {
        let own = |name: &CStr| module.exported_function(name);
        let getters = [Abi::Old, Abi::New]
            .into_iter()
            .find_map(|abi| Some((abi, own(OPERATION_NAME[abi as usize])?, own(SAVE_TENSOR_DIR[abi as usize])?)));
        Some(Self {
            execute: own(EXECUTE)?,
            addresses: module.addresses(),
            module_index: module.index,
            is_save: own(IS_SAVE),
            questions: [DESC, BEFORE, AFTER, IN_RANGE].map(own),
            need_save: NEED_SAVE.iter().find_map(|name| own(name)),
            save_launch_param: SAVE_LAUNCH_PARAM.map(own),
            getters,
        })
    }

    /// What is called around kernels, and every question that decides whether it is.
    fn tell_kernels(&self) -> bool {
        let are_asked = self.questions.iter().all(Option::is_some) && self.need_save.is_some();
        are_asked && self.save_launch_param.iter().any(Option::is_some)
    }
}

impl Library {
    fn new(exports: &Exports) -> Self {
        // A library of the job that answers questions of ATB stands before libatb, which then asks it.
        let asked = |name: &CStr, own: Option<usize>| answering_function(name).or(own);
        let [desc, before, after, in_range] = exports.questions;
        let [old_launch_param, new_launch_param] = exports.save_launch_param;
        let need_save = NEED_SAVE.iter().find_map(|name| answering_function(name)).or(exports.need_save);
        Self {
            addresses: exports.addresses.clone(),
            is_kept: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            // SAFETY: a function of this name has this signature.
            execute: unsafe { std::mem::transmute::<usize, Execute>(exports.execute) },
            getters: exports.getters.and_then(|(abi, operation_name, save_tensor_dir)| {
                Some(Getters { abi, destructor: abi.destructor()?, operation_name, save_tensor_dir })
            }),
            tells_kernels: exports.tell_kernels(),
            desc: function!(asked(DESC, desc), Question),
            before: function!(asked(BEFORE, before), Question),
            after: function!(asked(AFTER, after), Question),
            in_range: function!(asked(IN_RANGE, in_range), CountQuestion),
            need_save: function!(need_save, SaveQuestion),
            is_save: function!(exports.is_save, RunnerQuestion),
            save_launch_param: [
                function!(asked(SAVE_LAUNCH_PARAM[0], old_launch_param), SaveLaunchParam),
                function!(asked(SAVE_LAUNCH_PARAM[1], new_launch_param), SaveLaunchParam),
            ],
        }
    }

    /// Its function that saves the tensors of a kernel.
    pub fn save_launch_param(&self, abi: Abi) -> Option<SaveLaunchParam> {
        self.save_launch_param[abi as usize]
    }

    /// Says, once, what of this library cannot be seen.
    #[cold]
    pub fn say_unseen(&self, text: &str) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            say(text);
        }
    }
}

/// A function of a library that came with the program, stands behind us and is no libatb.
fn answering_function(name: &CStr) -> Option<usize> {
    let mut found = None;
    real::for_each_next_module(|module| {
        found = module.exported_function(name).filter(|_| module.exported_function(EXECUTE).is_none());
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Whether any libatb is loaded whose operators can be hooked.
pub fn is_loaded() -> bool {
    first_with(|_| true).is_some()
}

/// What the first libatb that is wanted exports.
fn first_with(mut is_wanted: impl FnMut(&Module<'_>) -> bool) -> Option<Exports> {
    let mut found = None;
    elf::for_each_module(|module| {
        if !real::is_own(module) && is_wanted(module) {
            found = Exports::of(module);
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// The library that a call of one of its functions comes from.
#[inline(always)]
pub fn at(caller: usize) -> Option<&'static Library> {
    latest(caller).or_else(|| find(caller, None))
}

/// The library that a call of a runner comes from.
#[inline(always)]
pub fn of_call(caller: usize, runner: *const c_void) -> Option<&'static Library> {
    latest(caller).or_else(|| find(caller, Some(runner)))
}

#[inline(always)]
fn latest(caller: usize) -> Option<&'static Library> {
    let (address, library) = LATEST.get();
    // SAFETY: null or a library, which is never freed.
    let library = if address == caller { unsafe { library.as_ref() } } else { None };
    library.filter(|library| library.is_kept.load(Ordering::Relaxed))
}

/// The known libraries.
fn known() -> impl Iterator<Item = &'static Library> {
    // SAFETY: null or a library, which is never freed.
    let all = LIBRARIES.iter().map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    all.filter(|library| library.is_kept.load(Ordering::Relaxed))
}

fn known_at(address: usize) -> Option<&'static Library> {
    known().find(|library| library.addresses.contains(&address))
}

#[inline(never)]
fn find(caller: usize, runner: Option<*const c_void>) -> Option<&'static Library> {
    if let Some(library) = known_at(caller) {
        LATEST.set((caller, library));
        return Some(library);
    }
    // A call from somewhere else belongs to the library that has the runner's class: its objects begin with that.
    // SAFETY: a runner of the job.
    let class = runner.map(|runner| unsafe { *runner.cast::<usize>() });
    if let Some(library) = class.and_then(known_at) {
        return Some(library);
    }
    errno::aside(|| {
        let at_caller = first_with(|module| module.contains(caller));
        let of_class = || class.and_then(|class| first_with(|module| module.contains(class)));
        let is_callers = at_caller.is_some();
        let found = match at_caller.or_else(of_class) {
            Some(exports) => Some(take_in(&exports)),
            None => known().next().or_else(|| Some(take_in(&first_with(|_| true)?))),
        };
        if let Some(library) = found.filter(|_| is_callers || runner.is_none()) {
            LATEST.set((caller, library));
        }
        found
    })
}

/// Remembers a library and keeps it loaded.
fn take_in(exports: &Exports) -> &'static Library {
    // SAFETY: null or a library, which is never freed.
    let mut all = LIBRARIES.iter().map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    let is_same = |library: &&Library| library.addresses == exports.addresses;
    let library = match all.find(is_same) {
        Some(earlier) if earlier.execute as usize == exports.execute => earlier,
        _ => {
            let new = Box::into_raw(Box::new(Library::new(exports)));
            // One that finds no place is found again by every thread that comes from somewhere else.
            let _ = LIBRARIES.iter().any(|place| {
                place.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire).is_ok()
            });
            // SAFETY: never freed from here on.
            unsafe { &*new }
        }
    };
    if !library.is_kept.swap(true, Ordering::AcqRel) {
        let object = std::ptr::from_ref(library).cast_mut().cast();
        real::keep_loaded(exports.module_index, exports.execute as *mut c_void, forget, object);
    }
    library
}

/// A library may be unloaded from now on.
unsafe extern "C" fn forget(library: *mut c_void) {
    // SAFETY: what was passed with it, never freed.
    unsafe { &*library.cast::<Library>() }.is_kept.store(false, Ordering::Release);
}

/// Says what cannot be seen of libraries that have none of the functions we know.
pub fn say_what_is_missing() {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let mut is_missing = false;
    elf::for_each_module(|module| {
        is_missing |= !real::is_own(module) && module.is_named(NAME) && module.exported_function(EXECUTE).is_none();
        ControlFlow::Continue(())
    });
    if is_missing && !IS_TOLD.swap(true, Ordering::Relaxed) {
        say(
            "ATB's operators are not recorded: this libatb.so does not export atb::Runner::Execute; they run as always, \
             and ATB's memory is recorded",
        );
    }
}
