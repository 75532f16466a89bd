//! Questions asked of small recordings whose answers are known, and of generated ones whose answers a
//! plain model gives.

mod annotate;
mod causes;
mod check;
mod compare;
mod damage;
mod holders;
mod inefficient;
mod kernels;
mod leaks;
mod memory;
mod mindspore;
mod models;
mod moments;
mod own_limit;
mod pool_classes;
mod real_files;
mod support;
mod watch;
