//! What a finisher wrote for a recording, so that the next one neither repeats nor destroys it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::files::PendingFile;

/// Name inside the directory of a process.
pub(crate) const MANIFEST_NAME: &str = ".finished";
const FIRST_LINE: &str = "msmemscope finished 1";

/// One file as it was when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    /// Below the directory of the process.
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
    pub(crate) modified_ns: i64,
    pub(crate) rows: u64,
}

impl ManifestFile {
    /// Describes a complete file that is going to get a name; renaming changes neither size nor time.
    pub(crate) fn of(pending: &Path, path: &Path, rows: u64) -> io::Result<Self> {
        let (size_bytes, modified_ns) = size_and_time(pending)?;
        Ok(Self { path: path.to_owned(), size_bytes, modified_ns, rows })
    }

    /// Whether its name may be used again: nobody changed the file since, or it is not there.
    pub(crate) fn may_be_replaced(&self, directory: &Path) -> bool {
        match size_and_time(&directory.join(&self.path)) {
            Ok(now) => now == (self.size_bytes, self.modified_ns),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

fn size_and_time(path: &Path) -> io::Result<(u64, i64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.size(), metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()))
}

/// What was written, from what, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Whether all files have their names and the process had ended, so that nothing can be added.
    pub(crate) complete: bool,
    /// Options that decide what the files say.
    pub(crate) options: String,
    /// Records that were read.
    pub(crate) records: u64,
    /// The timestamp in the file names.
    pub(crate) timestamp: String,
    pub(crate) files: Vec<ManifestFile>,
}

impl Manifest {
    /// Reads the manifest of a directory; nothing if there is none or it is not readable as one.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join(MANIFEST_NAME)).ok()?;
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let complete = lines.next()?.strip_prefix("complete ")? == "yes";
        let options = lines.next()?.strip_prefix("options ")?.to_owned();
        let records = lines.next()?.strip_prefix("records ")?.parse().ok()?;
        let timestamp = lines.next()?.strip_prefix("timestamp ")?.to_owned();
        let files = lines.map(parse_file).collect::<Option<_>>()?;
        Some(Self { complete, options, records, timestamp, files })
    }

    /// Writes the manifest, replacing an older one.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = format!(
            "{FIRST_LINE}\ncomplete {}\noptions {}\nrecords {}\ntimestamp {}\n",
            if self.complete { "yes" } else { "no" },
            self.options,
            self.records,
            self.timestamp
        );
        for file in &self.files {
            let path = file.path.display();
            let _ = writeln!(text, "file {} {} {} {path}", file.size_bytes, file.modified_ns, file.rows);
        }
        let (pending, mut file) = PendingFile::create(directory, "manifest")?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        pending.commit_replacing(&directory.join(MANIFEST_NAME))
    }
}

fn parse_file(line: &str) -> Option<ManifestFile> {
    let mut parts = line.strip_prefix("file ")?.splitn(4, ' ');
    Some(ManifestFile {
        size_bytes: parts.next()?.parse().ok()?,
        modified_ns: parts.next()?.parse().ok()?,
        rows: parts.next()?.parse().ok()?,
        path: PathBuf::from(parts.next()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_survive_the_round_trip_and_notice_changes() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let name = Path::new("device_0.csv");
        fs::write(directory.path().join(name), b"rows").expect("writable");
        let manifest = Manifest {
            complete: true,
            options: "csv all".into(),
            records: 7,
            timestamp: "20250102030405".into(),
            files: vec![ManifestFile::of(&directory.path().join(name), name, 3).expect("file exists")],
        };
        manifest.write(directory.path()).expect("writable");
        let read = Manifest::read(directory.path()).expect("manifest");
        assert_eq!(read, manifest);
        assert!(read.files[0].may_be_replaced(directory.path()));
        fs::write(directory.path().join(name), b"changed").expect("writable");
        assert!(!read.files[0].may_be_replaced(directory.path()));
        fs::remove_file(directory.path().join(name)).expect("removable");
        assert!(read.files[0].may_be_replaced(directory.path()));
        fs::write(directory.path().join(MANIFEST_NAME), b"something else").expect("writable");
        assert_eq!(Manifest::read(directory.path()), None);
    }
}
