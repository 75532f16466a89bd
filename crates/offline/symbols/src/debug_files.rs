//! Finding the files that describe a module: itself if it is still the same, and separate debug
//! files by build id or by the name the module links to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use msmemscope_trace::open_regular_file;
use object::{Object, ObjectSection, ReadCache};

/// Where distributions put debug files.
pub const SYSTEM_DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// What became of a module's file since it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleState {
    /// The same build.
    Same,
    /// A different build is there now.
    Changed,
    /// It is not there, or cannot be read.
    Missing,
}

/// Files to take symbols from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SymbolFiles {
    pub state: ModuleState,
    /// The module itself, if it is the same build.
    pub module: Option<PathBuf>,
    /// A file with debug information, which may be the module.
    pub debug: Option<PathBuf>,
    /// What the debug file shares with others.
    pub supplement: Option<PathBuf>,
}

/// What is read from one ELF file.
struct Facts {
    build_id: Vec<u8>,
    has_debug_information: bool,
    debug_link: Option<(Vec<u8>, u32)>,
    supplement: Option<(Vec<u8>, Vec<u8>)>,
}

fn read_facts(path: &Path) -> Option<Facts> {
    let cache = ReadCache::new(open_regular_file(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let debug_information = file.section_by_name(".debug_info").or_else(|| file.section_by_name(".zdebug_info"));
    Some(Facts {
        build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
        has_debug_information: debug_information.is_some_and(|section| section.size() > 0),
        debug_link: file.gnu_debuglink().ok().flatten().map(|(name, checksum)| (name.to_vec(), checksum)),
        supplement: file.gnu_debugaltlink().ok().flatten().map(|(name, id)| (name.to_vec(), id.to_vec())),
    })
}

/// Finds the files of a module. `recorded` is when it was seen, which matters if it has no build id.
pub(crate) fn find(path: &Path, build_id: &[u8], recorded: Option<SystemTime>, directories: &[PathBuf]) -> SymbolFiles {
    let facts = read_facts(path);
    let state = match &facts {
        None => ModuleState::Missing,
        Some(facts) if facts.build_id != build_id => ModuleState::Changed,
        Some(_) if build_id.is_empty() && is_younger(path, recorded) => ModuleState::Changed,
        Some(_) => ModuleState::Same,
    };
    let module = (state == ModuleState::Same).then(|| path.to_path_buf());
    let own = facts.as_ref().filter(|facts| module.is_some() && facts.has_debug_information);
    let linked = || {
        let (name, checksum) = facts.as_ref()?.debug_link.as_ref().filter(|_| module.is_some())?;
        linked_debug_file(path, name, *checksum, build_id, directories)
    };
    let debug = match own {
        Some(_) => module.clone(),
        None => debug_file_of_build(build_id, directories).or_else(linked),
    };
    let supplement = debug.as_deref().and_then(|debug| find_supplement(debug, directories));
    SymbolFiles { state, module, debug, supplement }
}

/// Whether a file was written after a moment.
fn is_younger(path: &Path, moment: Option<SystemTime>) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.zip(moment).is_some_and(|(modified, moment)| modified > moment)
}

/// The debug file of a build in one of the directories.
fn debug_file_of_build(build_id: &[u8], directories: &[PathBuf]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    directories
        .iter()
        .map(|directory| directory.join(format!(".build-id/{first:02x}/{rest}.debug")))
        .find(|candidate| read_facts(candidate).is_some_and(|facts| facts.build_id == build_id))
}

/// The debug file a module names, in the places where it may be.
fn linked_debug_file(
    path: &Path,
    name: &[u8],
    checksum: u32,
    build_id: &[u8],
    directories: &[PathBuf],
) -> Option<PathBuf> {
    let name = OsStr::from_bytes(name);
    let parent = std::fs::canonicalize(path).ok()?.parent()?.to_path_buf();
    let beside = [parent.join(name), parent.join(".debug").join(name)];
    let elsewhere =
        directories.iter().map(|directory| directory.join(parent.strip_prefix("/").unwrap_or(&parent)).join(name));
    beside.into_iter().chain(elsewhere).find(|candidate| {
        read_facts(candidate).is_some_and(|facts| {
            if build_id.is_empty() || facts.build_id.is_empty() {
                std::fs::read(candidate).is_ok_and(|bytes| crc32(&bytes) == checksum)
            } else {
                facts.build_id == build_id
            }
        })
    })
}

/// The file that holds what a debug file shares with others.
fn find_supplement(debug: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let (name, build_id) = read_facts(debug)?.supplement?;
    let named = debug.parent()?.join(OsStr::from_bytes(&name));
    let fits = |candidate: &Path| read_facts(candidate).is_some_and(|facts| facts.build_id == build_id);
    if fits(&named) { Some(named) } else { debug_file_of_build(&build_id, directories) }
}

/// The checksum by which a module names its debug file.
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|index| {
        (0..8).fold(index as u32, |value, _| if value & 1 == 0 { value >> 1 } else { value >> 1 ^ 0xedb8_8320 })
    });
    !bytes.iter().fold(!0, |sum, byte| table[usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn missing_and_foreign_files_are_told_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = directory.path().join("notes.txt");
        assert_eq!(find(&text, &[], None, &[]).state, ModuleState::Missing);
        std::fs::write(&text, "not a library").expect("written");
        assert_eq!(find(&text, &[1], None, &[]).state, ModuleState::Missing);
        // Nobody ever writes into this one: opening it must not wait.
        let pipe = directory.path().join("library.so");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert_eq!(find(&pipe, &[1], None, &[]).state, ModuleState::Missing);
        let program = std::env::current_exe().expect("known");
        assert_eq!(find(&program, &[1, 2, 3], None, &[]).state, ModuleState::Changed);
    }
}
