//! `msmemscope env`: the variables for recording by hand, printed for `eval`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::libraries::PRELOAD_LIBRARIES;
use msmemscope_report::shell;

/// Shell lines that put the library directory and all preload libraries in front of what the user
/// has. Entries that are there already are not repeated, so evaluating twice changes nothing.
pub fn shell_lines(
    library_directory: &Path,
    existing_library_path: Option<&OsStr>,
    existing_preload: Option<&OsStr>,
) -> Vec<u8> {
    let directory = library_directory.as_os_str().as_bytes().to_vec();
    let libraries = PRELOAD_LIBRARIES
        .iter()
        .map(|name| library_directory.join(name))
        .filter(|path| path.is_file())
        .map(|path| path.as_os_str().as_bytes().to_vec());
    let mut lines = export("MSMEMSCOPE_LIB_PATH", &directory);
    lines.extend(export("LD_LIBRARY_PATH", &joined(existing_library_path, std::iter::once(directory.clone()))));
    lines.extend(export("LD_PRELOAD", &joined(existing_preload, libraries)));
    lines
}

/// New entries in front of the existing ones, separated by colons.
fn joined(existing: Option<&OsStr>, new: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let existing = existing.map_or(&b""[..], OsStrExt::as_bytes);
    let present: Vec<&[u8]> = existing.split(|&byte| byte == b':').filter(|entry| !entry.is_empty()).collect();
    let mut entries: Vec<Vec<u8>> = new.filter(|entry| !present.contains(&&entry[..])).collect();
    entries.extend(present.iter().map(|entry| entry.to_vec()));
    entries.join(&b':')
}

/// `export NAME='value'`.
fn export(name: &str, value: &[u8]) -> Vec<u8> {
    let mut line = format!("export {name}=").into_bytes();
    line.extend(shell::quoted(value));
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_added_once_and_quoted() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let home = directory.path().join("it's here");
        std::fs::create_dir(&home).expect("directory");
        std::fs::write(home.join(PRELOAD_LIBRARIES[2]), b"").expect("library");
        let text = String::from_utf8(shell_lines(&home, Some(OsStr::new("/usr/local/lib")), None)).expect("text");
        let quoted = format!("{}/it'\\''s here", directory.path().display());
        assert_eq!(
            text,
            format!(
                "export MSMEMSCOPE_LIB_PATH='{quoted}'\nexport LD_LIBRARY_PATH='{quoted}:/usr/local/lib'\n\
                 export LD_PRELOAD='{quoted}/libascend_kernel_hook.so'\n"
            )
        );
        let preload = home.join(PRELOAD_LIBRARIES[2]);
        let again = joined(Some(preload.as_os_str()), std::iter::once(preload.as_os_str().as_bytes().to_vec()));
        assert_eq!(again, preload.as_os_str().as_bytes());
    }
}
