//! Programs and libraries of the release build, which tests run. A test on yesterday's library proves nothing, so files
//! that are older than one of their sources are refused.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The directory of the release build.
pub fn release_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/release")
}

/// A file of the release build, as its sources are now.
///
/// # Panics
/// When it is missing, or older than one of its sources.
pub fn release_file(name: &str) -> PathBuf {
    let path = release_directory().join(name);
    assert!(path.exists(), "{} is missing: run `make build standin` first", path.display());
    if let Some(source) = newer_source(&path) {
        panic!("{} is older than {}: run `make build standin` first", path.display(), source.display());
    }
    path.canonicalize().expect("a path that exists")
}

/// A source that is newer than a file made of it, or gone, as far as cargo has noted what the sources are.
pub fn newer_source(path: &Path) -> Option<PathBuf> {
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let built: SystemTime = modified(path)?;
    let note = std::fs::read_to_string(path.with_extension("d")).ok()?;
    let (_, sources) = note.lines().next()?.split_once(": ")?;
    // Cargo writes blanks in names as `\ `.
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|source| PathBuf::from(source.replace('\0', " ")));
    sources.find(|source| modified(source).is_none_or(|changed| changed > built))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_older_than_its_source_is_found_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["lib x.so", "a file.rs", "b.rs"] {
            fs::write(at(name), name).expect("a file");
        }
        let escaped = |name: &str| at(name).display().to_string().replace(' ', "\\ ");
        let note = format!("{}: {} {}\n", escaped("lib x.so"), escaped("a file.rs"), escaped("b.rs"));
        fs::write(at("lib x.d"), note).expect("a note");
        let set = |name: &str, seconds: u64| {
            let file = File::options().write(true).open(at(name)).expect("a file");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("a time");
        };
        for (name, seconds) in [("lib x.so", 20), ("a file.rs", 10), ("b.rs", 10)] {
            set(name, seconds);
        }
        assert_eq!(newer_source(&at("lib x.so")), None);
        set("a file.rs", 30);
        assert_eq!(newer_source(&at("lib x.so")), Some(at("a file.rs")));
        set("a file.rs", 10);
        fs::remove_file(at("b.rs")).expect("removed");
        assert_eq!(newer_source(&at("lib x.so")), Some(at("b.rs")));
    }
}
