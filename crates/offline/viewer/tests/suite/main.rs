//! The viewer over real HTTP: who may ask, and whether the answers are those of the analyses.

mod hostile;
mod numbers;
mod progress;
mod ranks;
mod reopening;
mod security;
mod support;
