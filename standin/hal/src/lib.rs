//! Stand-in for CANN's `libascend_hal.so`: the driver's memory interface on host memory.
//!
//! Addresses look like those of a card, capacity is limited, and what several processes take from one card is
//! counted in one place, so a real `OUT_OF_MEMORY` happens where it would happen on a card. Every call is written
//! to the ground-truth log.

mod address;
mod allocation;
mod card;
mod channel;
mod device_clock;
mod error;
mod exports;
mod flags;
mod queries;
mod state;
mod virtual_memory;
