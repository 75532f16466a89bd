//! The operations, made of sending and receiving.
//!
//! What is reduced is reduced in the order of ranks by everybody, so that all ranks come to the same bits.

use crate::Failure;
use crate::reduction::{ElementType, Operation, combine};
use crate::rings::{Rings, Transfer};
use std::time::Duration;

/// Bytes of one rank that are reduced at a time.
const PORTION_BYTES: usize = 1 << 20;

/// Memory of the caller: where, and how many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Memory {
    pub(crate) fn part(self, offset: usize, bytes: usize) -> Self {
        Self { address: self.address + offset, bytes }
    }

    /// Copies to other memory, which may overlap.
    fn copy_to(self, other: Self) {
        // SAFETY: the caller of the operation gives memory of these sizes.
        unsafe { std::ptr::copy(self.address as *const u8, other.address as *mut u8, self.bytes.min(other.bytes)) };
    }
}

pub(crate) fn send(peer: u32, memory: Memory) -> Transfer {
    Transfer { is_send: true, peer, address: memory.address, bytes: memory.bytes }
}

pub(crate) fn receive(peer: u32, memory: Memory) -> Transfer {
    Transfer { is_send: false, peer, address: memory.address, bytes: memory.bytes }
}

/// What elements are and what is done with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub(crate) element_type: ElementType,
    pub(crate) operation: Operation,
}

/// One operation of a group of ranks.
pub(crate) struct Collective<'r> {
    pub(crate) rings: &'r Rings,
    pub(crate) patience: Duration,
}

impl Collective<'_> {
    pub(crate) fn exchange(&self, transfers: &[Transfer]) -> Result<(), Failure> {
        self.rings.exchange(transfers, self.patience)
    }

    fn others(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.rings.ranks()).filter(|&rank| rank != self.rings.own_rank())
    }

    /// Nobody goes on before all have come.
    pub(crate) fn barrier(&self) -> Result<(), Failure> {
        let (token, mut tokens) = (1u8, vec![0u8; self.rings.ranks() as usize]);
        let sent = Memory { address: (&raw const token) as usize, bytes: 1 };
        let received = Memory { address: tokens.as_mut_ptr() as usize, bytes: tokens.len() };
        let sends = self.others().map(|rank| send(rank, sent));
        let receives = self.others().map(|rank| receive(rank, received.part(rank as usize, 1)));
        self.exchange(&sends.chain(receives).collect::<Vec<_>>())
    }

    /// Everybody gets what the root has.
    pub(crate) fn broadcast(&self, memory: Memory, root: u32) -> Result<(), Failure> {
        let transfers = match root == self.rings.own_rank() {
            true => self.others().map(|rank| send(rank, memory)).collect(),
            false => vec![receive(root, memory)],
        };
        self.exchange(&transfers)
    }

    /// Everybody gets the parts of all, each at its place.
    pub(crate) fn all_gather(&self, own: Memory, parts: &[Memory]) -> Result<(), Failure> {
        let mut transfers: Vec<Transfer> = self.others().map(|rank| send(rank, own)).collect();
        transfers.extend(self.others().map(|rank| receive(rank, parts[rank as usize])));
        self.exchange(&transfers)?;
        own.copy_to(parts[self.rings.own_rank() as usize]);
        Ok(())
    }

    /// Everybody gets a part of the root's.
    pub(crate) fn scatter(&self, parts: &[Memory], own: Memory, root: u32) -> Result<(), Failure> {
        if root != self.rings.own_rank() {
            return self.exchange(&[receive(root, own)]);
        }
        let transfers: Vec<Transfer> = self.others().map(|rank| send(rank, parts[rank as usize])).collect();
        self.exchange(&transfers)?;
        parts[root as usize].copy_to(own);
        Ok(())
    }

    /// Everybody sends a part to everybody.
    pub(crate) fn all_to_all(&self, sent: &[Memory], received: &[Memory]) -> Result<(), Failure> {
        let own = self.rings.own_rank() as usize;
        let mut transfers: Vec<Transfer> = self.others().map(|rank| send(rank, sent[rank as usize])).collect();
        transfers.extend(self.others().map(|rank| receive(rank, received[rank as usize])));
        self.exchange(&transfers)?;
        sent[own].copy_to(received[own]);
        Ok(())
    }

    /// Everybody gives its contribution for everybody; `own` becomes the reduction of those for this rank. Ranks without
    /// memory of their own to fill only give.
    pub(crate) fn reduce_scatter(&self, given: &[Memory], own: Option<Memory>, how: Reduction) -> Result<(), Failure> {
        let longest = given.iter().map(|memory| memory.bytes).max().unwrap_or(0);
        let portion = PORTION_BYTES / how.element_type.bytes() * how.element_type.bytes();
        for offset in (0..longest).step_by(portion) {
            self.reduce_portion(given, own, how, offset, portion)?;
        }
        Ok(())
    }

    fn reduce_portion(
        &self,
        given: &[Memory],
        own: Option<Memory>,
        how: Reduction,
        offset: usize,
        portion: usize,
    ) -> Result<(), Failure> {
        let own_rank = self.rings.own_rank();
        let length = |memory: &Memory| memory.bytes.saturating_sub(offset).min(portion);
        let own_bytes = own.as_ref().map_or(0, length);
        let mut arrived = vec![0u8; own_bytes * self.rings.ranks() as usize];
        let places = Memory { address: arrived.as_mut_ptr() as usize, bytes: arrived.len() };
        let place = |rank: u32| places.part(rank as usize * own_bytes, own_bytes);
        let part = |rank: u32| {
            let memory = given[rank as usize];
            memory.part(offset.min(memory.bytes), length(&memory))
        };
        let sends = self.others().map(|rank| send(rank, part(rank)));
        let receives = self.others().map(|rank| receive(rank, place(rank)));
        let transfers: Vec<Transfer> = sends.chain(receives).filter(|transfer| transfer.bytes > 0).collect();
        self.exchange(&transfers)?;
        let Some(own) = own.filter(|_| own_bytes > 0) else { return Ok(()) };
        part(own_rank).copy_to(place(own_rank));
        let (total, others) = arrived.split_at_mut(own_bytes);
        for other in others.chunks_exact(own_bytes) {
            combine(total, other, how.element_type, how.operation);
        }
        place(0).copy_to(own.part(offset, own_bytes));
        Ok(())
    }

    /// Everybody gets the reduction of all.
    pub(crate) fn all_reduce(&self, given: Memory, own: Memory, how: Reduction) -> Result<(), Failure> {
        self.reduce_scatter(&vec![given; self.rings.ranks() as usize], Some(own), how)
    }

    /// The root gets the reduction of all.
    pub(crate) fn reduce(&self, given: Memory, own: Memory, root: u32, how: Reduction) -> Result<(), Failure> {
        let nothing = Memory { address: given.address, bytes: 0 };
        let parts: Vec<Memory> =
            (0..self.rings.ranks()).map(|rank| if rank == root { given } else { nothing }).collect();
        self.reduce_scatter(&parts, (root == self.rings.own_rank()).then_some(own), how)
    }
}
