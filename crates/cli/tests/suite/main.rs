//! The whole tool as users meet it: the release program, the recorder and C programs on the stand-in device.

mod by_hand;
mod exact;
mod hostile;
mod kills;
mod options;
mod pseudo_terminal;
mod results;
mod supervision;
mod support;
mod terminal;
mod truth;
