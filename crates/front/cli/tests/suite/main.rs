//! The whole tool as users meet it: the release program, the recorder and C programs on the stand-in device.

mod by_hand;
mod card_memory;
mod comparing;
mod controlling;
mod exact;
mod exporting;
mod findings;
mod flight_recorder;
mod hazards;
mod hostile;
mod housekeeping;
mod kernels;
mod kills;
mod options;
mod pseudo_terminal;
mod replaying;
mod reporting;
mod results;
mod security;
mod supervision;
mod support;
mod terminal;
mod top;
mod truth;
mod viewing;

/// Runs before the tests: signals that end a job must be able to end it. Shells start background jobs
/// with SIGINT and SIGQUIT ignored, `nohup` ignores SIGHUP, and all that is inherited.
#[used]
// SAFETY: the loader calls the functions in this section once, before any other thread exists.
#[unsafe(link_section = ".init_array")]
static ACCEPT_SIGNALS: extern "C" fn() = {
    extern "C" fn accept() {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
            // SAFETY: plain system call.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    accept
};
