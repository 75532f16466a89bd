//! Callbacks of profilers: one of each kind.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// Kinds of callbacks that are called here, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Reports of 64 bytes.
    Compact = 4,
    /// Reports with more room.
    Additional = 5,
    /// Calls of an interface.
    Api = 9,
    /// The number of a text.
    Hash = 12,
    /// Devices that are opened and closed.
    Device = 16,
}

/// Kinds that a profiler may register: those above, and events, names of types, and the host's frequency.
const KINDS: [i32; 8] = [4, 5, 9, 10, 11, 12, 13, 16];
/// Kinds of the past: accepted and ignored.
const IGNORED: [i32; 9] = [0, 1, 2, 3, 6, 7, 8, 14, 15];
const FAILED: i32 = -1;

/// A registered function.
#[derive(Clone, Copy)]
pub struct Callback(pub *mut c_void);

static CALLBACKS: [AtomicPtr<c_void>; 17] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 17];
/// Chip and number of the devices that are open.
static OPEN_DEVICES: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());

/// What a device callback is given.
#[repr(C)]
struct DeviceState {
    chip: u32,
    device: u32,
    is_open: bool,
}

/// The function registered for a kind.
pub fn callback(kind: Kind) -> Option<Callback> {
    let function = CALLBACKS[kind as usize].load(Ordering::Acquire);
    (!function.is_null()).then_some(Callback(function))
}

/// Registers a function, in place of the one before; null takes it away.
pub fn register(kind: i32, function: *mut c_void) -> i32 {
    if IGNORED.contains(&kind) {
        return 0;
    }
    if !KINDS.contains(&kind) {
        return FAILED;
    }
    CALLBACKS[kind as usize].store(function, Ordering::Release);
    if kind as usize == Kind::Device as usize {
        let open = OPEN_DEVICES.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.into_iter().for_each(|(chip, device)| tell(&DeviceState { chip, device, is_open: true }));
    }
    0
}

/// A device is opened or closed.
pub fn notify_device(chip: u32, device: u32, is_open: bool) -> i32 {
    let mut open = OPEN_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let was_open = open.contains(&(chip, device));
    open.retain(|known| *known != (chip, device));
    if is_open {
        open.push((chip, device));
    }
    drop(open);
    if was_open != is_open {
        tell(&DeviceState { chip, device, is_open });
    }
    0
}

fn tell(state: &DeviceState) {
    if let Some(Callback(function)) = callback(Kind::Device) {
        let data = std::ptr::from_ref(state).cast_mut().cast::<c_void>();
        // SAFETY: registered as a callback of this kind, which has this form.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_void, u32) -> i32 = std::mem::transmute(function);
            function(data, size_of::<DeviceState>() as u32);
        }
    }
}
