//! Text a shell reads back as one word, so that commands we print can be pasted as they are.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use msmemscope_event::is_steering;

/// A value in single quotes, whatever is in it.
pub fn quoted(value: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in value {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(byte),
        }
    }
    word.push(b'\'');
    word
}

/// A path for a message: as it is if a shell leaves it alone, else quoted. Control characters are
/// written the way bash reads them in `$'...'`, so that a message stays one line.
pub fn quoted_path(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(byte) || *byte >= 0x80;
    let steers = path.to_string_lossy().contains(is_steering);
    if !bytes.is_empty() && bytes.iter().all(is_plain) && !steers {
        return path.to_string_lossy().into_owned();
    }
    if !steers {
        return String::from_utf8_lossy(&quoted(bytes)).into_owned();
    }
    let mut word = String::from("$'");
    for character in path.to_string_lossy().chars() {
        match character {
            '\n' => word.push_str("\\n"),
            '\t' => word.push_str("\\t"),
            '\'' | '\\' => word.extend(['\\', character]),
            control if control.is_ascii_control() => word.push_str(&format!("\\x{:02x}", control as u32)),
            steering if is_steering(steering) => word.push_str(&format!("\\u{:04x}", steering as u32)),
            plain => word.push(plain),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for (path, shown) in [
            ("/data/out", "/data/out"),
            ("/data/my out", "'/data/my out'"),
            ("/it's", "'/it'\\''s'"),
            ("/训练", "/训练"),
            ("/a\nb'c", "$'/a\\nb\\'c'"),
            ("/\u{9b}1m \u{202e}x", "$'/\\u009b1m \\u202ex'"),
            ("", "''"),
        ] {
            assert_eq!(quoted_path(Path::new(path)), shown);
            let echoed = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {shown}")])
                .output()
                .expect("bash runs");
            assert_eq!(String::from_utf8_lossy(&echoed.stdout), path);
        }
    }
}
