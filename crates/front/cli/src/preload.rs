//! The recorder's path in a form that `LD_PRELOAD` can carry.
//!
//! The loader splits the variable at colons and white space and knows no quoting. If the tool is
//! installed below such a directory, a private directory with a link to that of the libraries stands in for
//! the length of the run. Frameworks resolve the link before they look at the file name.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What `LD_PRELOAD` names.
pub fn entries(value: &OsStr) -> Vec<&Path> {
    let entries = value.as_bytes().split(|byte| *byte == b':' || byte.is_ascii_whitespace());
    entries.filter(|entry| !entry.is_empty()).map(|entry| Path::new(OsStr::from_bytes(entry))).collect()
}

/// Whether a library is the runtime of a sanitizer, which must be loaded before all others.
pub fn is_sanitizer_runtime(library: &Path) -> bool {
    let name = library.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    let kinds = [&b"asan"[..], b"tsan", b"lsan", b"msan", b"hwasan", b"ubsan"];
    let name = name.strip_prefix(b"libclang_rt.").or_else(|| name.strip_prefix(b"lib")).unwrap_or_default();
    kinds
        .iter()
        .any(|kind| name.strip_prefix(*kind).is_some_and(|rest| rest.starts_with(b".") || rest.starts_with(b"-")))
}

/// Whether `LD_PRELOAD` can name a path.
pub fn can_carry(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|&byte| byte == b':' || byte.is_ascii_whitespace())
}

/// Name of the link to the directory of the libraries.
const LINK: &str = "lib64";

/// A path for `LD_PRELOAD`; a link made for it goes away with this value.
#[derive(Debug)]
pub struct PreloadPath {
    path: PathBuf,
    link_directory: Option<PathBuf>,
}

impl PreloadPath {
    /// The recorder itself, or its way through a link where its own path cannot be named.
    pub fn new(recorder: &Path) -> Result<Self, String> {
        if can_carry(recorder) {
            return Ok(Self { path: recorder.to_owned(), link_directory: None });
        }
        let places = [std::env::var_os("TMPDIR").unwrap_or_default(), "/tmp".into(), "/var/tmp".into()];
        let places = places.iter().map(Path::new).filter(|place| place.is_absolute() && can_carry(place));
        for directory in places.filter_map(private_directory) {
            let link = directory.join(LINK);
            let path = link.join(recorder.file_name().unwrap_or_default());
            let made = Self { path, link_directory: Some(directory) };
            let libraries = recorder.parent().unwrap_or(Path::new("/"));
            if std::os::unix::fs::symlink(libraries, &link).is_ok() {
                return Ok(made);
            }
        }
        Err(format!(
            "LD_PRELOAD cannot name '{}' (white space or colon) and no directory for a link was found; set TMPDIR",
            recorder.display()
        ))
    }

    /// What to write into the variable.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves a link where it is: processes that outlive the run may still start others.
    pub fn keep(mut self) {
        self.link_directory = None;
    }
}

impl Drop for PreloadPath {
    fn drop(&mut self) {
        if let Some(directory) = &self.link_directory {
            let _ = std::fs::remove_file(directory.join(LINK));
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// A new directory that only this user can enter.
fn private_directory(place: &Path) -> Option<PathBuf> {
    let template = CString::new(place.join("msmemscope-XXXXXX").into_os_string().into_vec()).ok()?;
    let template = template.into_raw();
    // SAFETY: a writable C string that ends with the six places; taken back right after.
    let (made, template) = unsafe {
        let made = !libc::mkdtemp(template).is_null();
        (made, CString::from_raw(template))
    };
    made.then(|| PathBuf::from(OsString::from_vec(template.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stands_in_where_needed_and_goes_away() {
        let plain = PreloadPath::new(Path::new("/lib64/libascend_kernel_hook.so")).expect("path");
        assert_eq!(plain.path(), Path::new("/lib64/libascend_kernel_hook.so"));
        let home = tempfile::tempdir().expect("temporary directory");
        let recorder = home.path().join("my tools/libascend_kernel_hook.so");
        std::fs::create_dir(home.path().join("my tools")).expect("directory");
        std::fs::write(&recorder, b"").expect("library");
        let link = PreloadPath::new(&recorder).expect("path");
        let path = link.path().to_owned();
        assert!(can_carry(&path) && path.ends_with("libascend_kernel_hook.so"));
        assert_eq!(path.canonicalize().expect("link"), recorder.canonicalize().expect("library"));
        drop(link);
        assert!(path.symlink_metadata().is_err() && !path.ancestors().nth(2).is_some_and(Path::exists));
    }
}
