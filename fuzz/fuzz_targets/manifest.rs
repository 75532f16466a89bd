//! Any text in place of a manifest: believed only if every path in it is the name of a result file, and then written the
//! same way again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use msmemscope_output::manifest_is_believed;

fuzz_target!(|text: &str| {
    let _ = manifest_is_believed(text);
});
