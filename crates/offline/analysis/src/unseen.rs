//! Pools of frameworks that a process used and the recording knows nothing of: what is said about memory then holds
//! for the driver only.

use msmemscope_event::{Pool, ProcessInfoKey};
use msmemscope_import::Recording;
use msmemscope_timeline::{FactSource, Summary};
use serde::Serialize;

use crate::device_text::pool_text;

/// The variable with which PyTorch takes every block from the driver.
const WITHOUT_POOL: &str = "PYTORCH_NO_NPU_MEMORY_CACHING=";

/// A pool that was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnseenPool {
    /// The pool.
    #[serde(serialize_with = "pool_text")]
    pub pool: Pool,
    /// Why, or how that is known.
    pub reason: String,
}

impl UnseenPool {
    /// Whose pool it is, in words.
    pub fn name(&self) -> &'static str {
        match self.pool {
            Pool::PytorchCaching | Pool::PytorchWorkspace => "PyTorch's pool",
            Pool::Mindspore => "MindSpore's pool",
            Pool::Atb => "ATB's pool",
            _ => "a pool",
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        format!("{} was not seen: {}", self.name(), self.reason)
    }
}

/// What was not seen of a process: what its recording says by itself, and a pool that must have been used. What has
/// blocks was seen.
pub fn unseen_pools(recording: &Recording, summary: &Summary) -> Vec<UnseenPool> {
    let text = recording.definitions().process_information(ProcessInfoKey::UnseenPools).unwrap_or_default();
    let mut unseen: Vec<UnseenPool> = String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| {
            let (name, reason) = line.split_once('=')?;
            let pool = [Pool::PytorchCaching, Pool::Mindspore, Pool::Atb].into_iter();
            let pool = pool.clone().find(|pool| pool.event_type() == name)?;
            Some(UnseenPool { pool, reason: reason.to_owned() })
        })
        .collect();
    let allocator = recording.definitions().process_information(ProcessInfoKey::AllocatorSettings).unwrap_or_default();
    let uses_pool = !String::from_utf8_lossy(allocator).lines().any(|line| line.starts_with(WITHOUT_POOL));
    let uses_driver = summary.pools.iter().any(|pool| pool.pool == Pool::Hal && pool.allocations > 0);
    let is_told = unseen.iter().any(|unseen| unseen.pool == Pool::PytorchCaching);
    if summary.pytorch_operators > 0 && uses_pool && uses_driver && !is_told {
        let reason = "its operators ran on the card, but it reported no memory".to_owned();
        unseen.push(UnseenPool { pool: Pool::PytorchCaching, reason });
    }
    unseen.retain(|unseen| summary.pools.iter().all(|seen| seen.pool != unseen.pool));
    unseen
}
