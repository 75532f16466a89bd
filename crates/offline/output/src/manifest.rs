//! What a finisher wrote for a recording, so that the next one neither repeats nor destroys it.
//!
//! A recording may come from others, and so may its manifest: nothing in it is believed that finishers do not write.
//! Its paths are names of result files below the directory, its timestamp is one; otherwise it counts as not there.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::Directory;
use crate::files::PendingFile;
use crate::result_names::{is_result_path, is_timestamp};

/// Name inside the directory of a process.
pub(crate) const MANIFEST_NAME: &str = ".finished";
/// Longer than that of any recording: a line of a hundred bytes for each of a hundred thousand threads.
const LONGEST_BYTES: u64 = 16 << 20;
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
    pub(crate) fn of(pending: &PendingFile, path: &Path, rows: u64) -> io::Result<Self> {
        let found = pending.facts()?;
        Ok(Self { path: path.to_owned(), size_bytes: found.size_bytes, modified_ns: found.modified_ns, rows })
    }

    /// Whether its name may be used again: nobody changed the file since, or it is not there.
    pub(crate) fn may_be_replaced(&self, directory: &Directory) -> bool {
        match directory.facts(&self.path) {
            Ok(now) => now.is_file && (now.size_bytes, now.modified_ns) == (self.size_bytes, self.modified_ns),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
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
    /// Reads the manifest of a directory; nothing if there is none or it is not one that a finisher writes.
    pub(crate) fn read(directory: &Directory) -> Option<Self> {
        let file = directory.open_file(Path::new(MANIFEST_NAME)).ok()?;
        let mut text = String::new();
        file.take(LONGEST_BYTES).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    /// Reads the text of a manifest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let complete = lines.next()?.strip_prefix("complete ")? == "yes";
        let options = lines.next()?.strip_prefix("options ")?.to_owned();
        let records = lines.next()?.strip_prefix("records ")?.parse().ok()?;
        let timestamp = lines.next()?.strip_prefix("timestamp ").filter(|text| is_timestamp(text))?.to_owned();
        let files = lines.map(|line| parse_file(line, &timestamp)).collect::<Option<_>>()?;
        Some(Self { complete, options, records, timestamp, files })
    }

    /// Writes the manifest, replacing an older one.
    pub(crate) fn write(&self, directory: &Arc<Directory>) -> io::Result<()> {
        let (pending, mut file) = PendingFile::create(directory, "manifest")?;
        io::Write::write_all(&mut file, self.text().as_bytes())?;
        pending.commit_replacing(Path::new(MANIFEST_NAME))
    }

    fn text(&self) -> String {
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
        text
    }
}

/// Whether a text is a manifest that would be believed; what is believed is written the same way again.
#[doc(hidden)]
pub fn is_believed(text: &str) -> bool {
    let Some(manifest) = Manifest::parse(text) else { return false };
    for file in &manifest.files {
        assert!(file.path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
    }
    assert_eq!(Manifest::parse(&manifest.text()).as_ref(), Some(&manifest));
    true
}

fn parse_file(line: &str, timestamp: &str) -> Option<ManifestFile> {
    let mut parts = line.strip_prefix("file ")?.splitn(4, ' ');
    Some(ManifestFile {
        size_bytes: parts.next()?.parse().ok()?,
        modified_ns: parts.next()?.parse().ok()?,
        rows: parts.next()?.parse().ok()?,
        path: parts.next().map(PathBuf::from).filter(|path| is_result_path(path, timestamp))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn manifests_survive_the_round_trip_and_notice_changes() {
        let home = tempfile::tempdir().expect("temporary directory");
        let directory = Arc::new(Directory::open(home.path()).expect("directory"));
        let name = Path::new("device_0/dump/memscope_dump_20250102030405.csv");
        let (pending, mut file) = PendingFile::create(&directory, "table").expect("writable");
        io::Write::write_all(&mut file, b"rows").expect("writable");
        let listed = ManifestFile::of(&pending, name, 3).expect("file exists");
        pending.commit(name).expect("a name");
        let manifest = Manifest {
            complete: true,
            options: "csv all".into(),
            records: 7,
            timestamp: "20250102030405".into(),
            files: vec![listed],
        };
        manifest.write(&directory).expect("writable");
        let read = Manifest::read(&directory).expect("manifest");
        assert_eq!(read, manifest);
        assert!(read.files[0].may_be_replaced(&directory));
        fs::write(home.path().join(name), b"changed").expect("writable");
        assert!(!read.files[0].may_be_replaced(&directory));
        fs::remove_file(home.path().join(name)).expect("removable");
        assert!(read.files[0].may_be_replaced(&directory));
        fs::write(home.path().join(MANIFEST_NAME), b"something else").expect("writable");
        assert_eq!(Manifest::read(&directory), None);
    }

    #[test]
    fn only_what_finishers_write_is_believed() {
        let manifest = |timestamp: &str, path: &str| {
            let head = format!("{FIRST_LINE}\ncomplete no\noptions x\nrecords 1\ntimestamp {timestamp}\n");
            Manifest::parse(&format!("{head}file 1 2 3 {path}\n")).is_some()
        };
        let good = "20250102030405";
        let path = format!("device_0/dump/memscope_dump_{good}.csv");
        assert!(manifest(good, &path));
        for path in [
            "/etc/passwd",
            "../victim.csv",
            "recording.trace",
            "device_0/dump/../../../victim.csv",
            "device_0/dump/memscope_dump_x/../../victim.csv",
            "./device_0/dump/memscope_dump_20250102030405.csv",
            "device_0/dump/memscope_dump_20250102030406.csv",
            "device_0/dump/memscope_dump_20250102030405.txt",
            "device_x/dump/memscope_dump_20250102030405.csv",
            "",
        ] {
            assert!(!manifest(good, path), "{path}");
        }
        for timestamp in ["", "2025", "x/../../../accounts", "2025010203040x", "202501020304051"] {
            assert!(!manifest(timestamp, &path.replace(good, timestamp)), "{timestamp}");
        }
    }
}
