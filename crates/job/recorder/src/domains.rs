//! Handles of mstx domains: fixed ones for the pools of frameworks, others as they are asked for.
//!
//! A framework asks for its domain at every single allocation, so this neither locks nor allocates
//! for a name that is known. A handle is an address in a table of ours, which makes handles of other
//! origin recognisable.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use msmemscope_event::{LossReason, Pool, StringId};

use crate::strings::{self, Text};
use crate::{atb, losses};

/// Names of the domains over which pools report, and the pool. The first of two names of the same
/// pool is the current one, the other its older spelling.
const POOLS: [(&[u8], Pool); 5] = [
    (b"ptaCaching", Pool::PytorchCaching),
    (b"msleaks", Pool::PytorchCaching),
    (b"ptaWorkspace", Pool::PytorchWorkspace),
    (b"mindsporeMemPool", Pool::Mindspore),
    (b"atb", Pool::Atb),
];

/// The kernel provides memory for those that are used.
const SLOTS: usize = 1 << 16;

/// A domain that is not a pool. The address of the slot is the handle.
struct Slot {
    name: AtomicPtr<Text>,
}

static POOL_HANDLES: [u64; POOLS.len()] = [0; POOLS.len()];
static OTHERS: [Slot; SLOTS] = [const { Slot { name: AtomicPtr::new(std::ptr::null_mut()) } }; SLOTS];

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The domain of a pool.
    Pool(Pool),
    /// A domain somebody made for marks and ranges.
    Named(StringId),
    /// No domain, or a handle that is none of ours.
    None,
}

impl Domain {
    /// The domain behind a handle.
    #[inline]
    pub fn of(handle: *mut c_void) -> Self {
        if let Some(index) = index_in(&POOL_HANDLES, handle) {
            return Domain::Pool(POOLS[index].1);
        }
        let Some(index) = index_in(&OTHERS, handle) else { return Domain::None };
        // SAFETY: null or an interned text, which is never freed.
        match unsafe { OTHERS[index].name.load(Ordering::Acquire).as_ref() } {
            Some(name) => Domain::Named(name.id()),
            None => Domain::None,
        }
    }

    /// Its name, for marks.
    pub fn name(self) -> StringId {
        match self {
            Domain::Pool(pool) => {
                let named = POOLS.iter().find(|(_, each)| *each == pool);
                named.map_or(StringId::NONE, |(name, _)| strings::intern(name))
            }
            Domain::Named(name) => name,
            Domain::None => StringId::NONE,
        }
    }
}

/// Position of the element whose address a handle is.
#[inline(always)]
fn index_in<Element>(table: &[Element], handle: *mut c_void) -> Option<usize> {
    let offset = (handle as usize).wrapping_sub(table.as_ptr() as usize);
    let index = offset / size_of::<Element>();
    (index < table.len() && offset.is_multiple_of(size_of::<Element>())).then_some(index)
}

/// The handle of a domain; the same for the same name. Never null for a name.
pub fn create(name: &[u8]) -> *mut c_void {
    if let Some(index) = POOLS.iter().position(|(each, _)| *each == name) {
        let pool = POOLS[index].1;
        if pool == Pool::Atb {
            atb::pool_reported();
        }
        let first = POOLS.iter().position(|(_, each)| *each == pool).unwrap_or(index);
        return (&raw const POOL_HANDLES[first]).cast_mut().cast();
    }
    let Some(text) = strings::intern_text(name) else { return std::ptr::null_mut() };
    let wanted = std::ptr::from_ref(text).cast_mut();
    for step in 0..SLOTS {
        let slot = &OTHERS[(text.id().0 as usize + step) % SLOTS];
        let found = slot.name.compare_exchange(std::ptr::null_mut(), wanted, Ordering::AcqRel, Ordering::Acquire);
        match found {
            Ok(_) => return std::ptr::from_ref(slot).cast_mut().cast(),
            Err(other) if other == wanted => return std::ptr::from_ref(slot).cast_mut().cast(),
            Err(_) => {}
        }
    }
    losses::count(LossReason::TableFull, 1);
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_their_handles() {
        assert_eq!(create(b"ptaCaching"), create(b"msleaks"));
        for (name, pool) in POOLS {
            assert_eq!(Domain::of(create(name)), Domain::Pool(pool));
        }
        assert_ne!(create(b"ptaWorkspace"), create(b"mindsporeMemPool"));
    }

    #[test]
    fn other_names_have_handles_and_names() {
        let (one, two) = (create(b"test"), create(b"communication"));
        assert!(!one.is_null() && !two.is_null() && one != two);
        assert_eq!(create(b"test"), one);
        assert_eq!(Domain::of(one), Domain::Named(strings::intern(b"test")));
        assert_eq!(Domain::of(two).name(), strings::intern(b"communication"));
    }

    #[test]
    fn thousands_of_domains_have_their_names() {
        let names: Vec<String> = (0..3000).map(|number| format!("domain {number}")).collect();
        let handles: Vec<_> = names.iter().map(|name| create(name.as_bytes())).collect();
        for (name, &handle) in names.iter().zip(&handles) {
            assert_eq!(create(name.as_bytes()), handle);
            assert_eq!(Domain::of(handle), Domain::Named(strings::intern(name.as_bytes())), "{name}");
        }
    }

    #[test]
    fn foreign_handles_are_recognised() {
        let mut elsewhere = 0u64;
        assert_eq!(Domain::of((&raw mut elsewhere).cast()), Domain::None);
        assert_eq!(Domain::of(std::ptr::null_mut()), Domain::None);
        assert_eq!(Domain::of(create(b"atb").cast::<u8>().wrapping_add(1).cast()), Domain::None);
    }
}
