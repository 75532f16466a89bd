//! Any environment value: the recorder's settings are read or refused, never with a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use msmemscope_settings::Recording;

fuzz_target!(|value: &str| {
    if let Ok(recording) = Recording::from_environment(value) {
        let again = Recording::from_environment(&recording.to_environment());
        assert_eq!(again.as_ref(), Ok(&recording));
    }
});
