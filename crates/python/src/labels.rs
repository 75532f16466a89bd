//! Labels that say who owns memory: facts for the recorder, and known here as well, since a hunt may keep
//! to the blocks of one owner.

use std::cell::RefCell;

use msmemscope_watch::Regions;
use pyo3::prelude::*;

use crate::session::table;
use crate::watch;

thread_local! {
    static REGIONS: RefCell<Regions> = RefCell::default();
}

/// Whether this thread is in a region with a label. A thread at its end is in none.
pub fn is_inside(label: u32) -> bool {
    REGIONS.try_with(|regions| regions.borrow().contains(label)).unwrap_or(false)
}

/// The thread entered a labelled region.
#[pyfunction]
fn label_push(level: u32, label: u32) {
    if let Some(table) = table() {
        REGIONS.with_borrow_mut(|regions| regions.enter(label));
        // SAFETY: no preconditions.
        unsafe { (table.label_push)(level, label) };
    }
}

/// The thread left it.
#[pyfunction]
fn label_pop(level: u32, label: u32) {
    if let Some(table) = table() {
        REGIONS.with_borrow_mut(|regions| regions.leave(label));
        // SAFETY: no preconditions.
        unsafe { (table.label_pop)(level, label) };
    }
}

/// The live block at this address got a label.
#[pyfunction]
fn label_address(address: u64, level: u32, label: u32) {
    if let Some(table) = table() {
        // SAFETY: the address is only noted.
        unsafe { (table.label_address)(address, level, label) };
        watch::labelled(address, label);
    }
}

/// Adds the functions of this module to the extension.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(label_push, module)?)?;
    module.add_function(wrap_pyfunction!(label_pop, module)?)?;
    module.add_function(wrap_pyfunction!(label_address, module)?)
}
