//! Tells one guest about blocks of framework pools as they come and go: watching needs to know what
//! is alive, and the recorder itself keeps no such list.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use msmemscope_control::BlockObserver;
use msmemscope_event::BlockProperties;

static OBSERVER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the guest's function, or takes it away.
pub fn set(observer: Option<BlockObserver>) {
    let function = observer.map_or(std::ptr::null_mut(), |observer| observer as *mut c_void);
    OBSERVER.store(function, Ordering::Release);
}

/// A block begins.
#[inline(always)]
pub fn begins(properties: &BlockProperties, address: u64, size_bytes: u64) {
    tell(true, properties, address, size_bytes);
}

/// A block ends.
#[inline(always)]
pub fn ends(properties: &BlockProperties, address: u64) {
    tell(false, properties, address, 0);
}

#[inline(always)]
fn tell(begins: bool, properties: &BlockProperties, address: u64, size_bytes: u64) {
    let observer = OBSERVER.load(Ordering::Acquire);
    if !observer.is_null() {
        call(observer, begins, properties, address, size_bytes);
    }
}

#[cold]
fn call(observer: *mut c_void, begins: bool, properties: &BlockProperties, address: u64, size_bytes: u64) {
    // SAFETY: only `set` stores here, and what it stores has this type and stays loaded.
    let observer = unsafe { std::mem::transmute::<*mut c_void, BlockObserver>(observer) };
    let (pool, device) = (properties.pool as u32, properties.device.code());
    // SAFETY: the guest's function takes any values.
    unsafe { observer(u32::from(begins), pool, device, address, size_bytes) };
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use msmemscope_event::{Device, Pool};

    use super::*;

    type News = (u32, u32, u32, u64, u64);
    static HEARD: Mutex<Vec<News>> = Mutex::new(Vec::new());

    unsafe extern "C" fn listen(begins: u32, pool: u32, device: u32, address: u64, size_bytes: u64) {
        HEARD.lock().expect("one thread").push((begins, pool, device, address, size_bytes));
    }

    #[test]
    fn the_guest_hears_of_blocks_while_it_listens() {
        let properties = BlockProperties::framework(Pool::PytorchCaching, Device::Npu(3));
        begins(&properties, 0x100, 64);
        set(Some(listen));
        begins(&properties, 0x1000, 512);
        ends(&properties, 0x1000);
        set(None);
        ends(&properties, 0x2000);
        let (pool, device) = (Pool::PytorchCaching as u32, Device::Npu(3).code());
        let heard = HEARD.lock().expect("one thread");
        assert_eq!(*heard, [(1, pool, device, 0x1000, 512), (0, pool, device, 0x1000, 0)]);
    }
}
