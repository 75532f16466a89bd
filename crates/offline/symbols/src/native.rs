//! Native addresses to functions, files and lines, with everything looked up once.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use addr2line::{Loader, demangle_auto};
use msmemscope_trace::{Definitions, Module};
use rustc_hash::FxHashMap;

use crate::debug_files::{ModuleState, SymbolFiles, find};

/// One function at one address. An address has several if functions were inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name for people; nothing if unknown.
    pub name: Option<String>,
    /// Bytes from the start of the function, if that is known.
    pub offset_bytes: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from one.
    pub line: Option<u32>,
    /// Whether it was inlined into the next one.
    pub is_inlined: bool,
}

/// What is known about one address of one module: functions from the innermost inlined one to the
/// one that has the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What became of the module's file.
    pub module_state: ModuleState,
    /// At least one.
    pub functions: Vec<Function>,
}

/// A module by what distinguishes it for symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModuleKey {
    path: Box<[u8]>,
    build_id: Box<[u8]>,
}

/// Symbols of one module.
struct ModuleSymbols {
    state: ModuleState,
    module: Option<Loader>,
    debug: Option<Loader>,
    places: FxHashMap<u64, Arc<Place>>,
}

/// All modules met so far.
pub(crate) struct NativeSymbols {
    directories: Vec<PathBuf>,
    modules: FxHashMap<ModuleKey, ModuleSymbols>,
}

impl NativeSymbols {
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, modules: FxHashMap::default() }
    }

    /// What is at a return address. `wall_offset_ns` turns the time of the recording into wall time.
    pub fn place(
        &mut self,
        definitions: &Definitions,
        module: &Module,
        return_address: u64,
        wall_offset_ns: i64,
    ) -> Arc<Place> {
        let path = definitions.string_bytes(module.path).unwrap_or_default();
        let key = ModuleKey { path: path.into(), build_id: module.build_id.as_slice().into() };
        let directories = &self.directories;
        let symbols = self.modules.entry(key).or_insert_with(|| {
            let recorded_ns = module.seen_monotonic_ns.checked_add_signed(wall_offset_ns);
            let recorded = recorded_ns.and_then(|ns| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(ns)));
            ModuleSymbols::load(&find(Path::new(OsStr::from_bytes(path)), &module.build_id, recorded, directories))
        });
        symbols.place(return_address.wrapping_sub(module.load_bias))
    }

    /// Modules whose file is not what was recorded.
    pub fn doubtful_modules(&self) -> impl Iterator<Item = (Cow<'_, str>, ModuleState)> {
        self.modules
            .iter()
            .filter(|(_, symbols)| symbols.state != ModuleState::Same)
            .map(|(key, symbols)| (String::from_utf8_lossy(&key.path), symbols.state))
    }
}

impl ModuleSymbols {
    fn load(files: &SymbolFiles) -> Self {
        let load = |path: &PathBuf, supplement: Option<&PathBuf>| {
            Loader::new_with_sup(path, supplement).or_else(|_| Loader::new(path)).ok()
        };
        let debug = files.debug.as_ref().and_then(|path| load(path, files.supplement.as_ref()));
        let module = files.module.as_ref().filter(|path| files.debug.as_ref() != Some(path));
        Self {
            state: files.state,
            module: module.and_then(|path| load(path, None)),
            debug,
            places: FxHashMap::default(),
        }
    }

    fn place(&mut self, return_address: u64) -> Arc<Place> {
        if let Some(place) = self.places.get(&return_address) {
            return Arc::clone(place);
        }
        let place = Arc::new(Place { module_state: self.state, functions: self.functions(return_address) });
        self.places.insert(return_address, Arc::clone(&place));
        place
    }

    fn functions(&self, return_address: u64) -> Vec<Function> {
        // The call is the instruction before the one it returns to.
        let address = return_address.saturating_sub(1);
        let symbol = [&self.debug, &self.module]
            .into_iter()
            .flatten()
            .find_map(|loader| loader.find_symbol_info(address).filter(|symbol| !symbol.name().is_empty()));
        let mut functions = self.debug.as_ref().map_or_else(Vec::new, |loader| described_functions(loader, address));
        if functions.is_empty() {
            functions.push(Function { name: None, offset_bytes: None, file: None, line: None, is_inlined: false });
        }
        if let (Some(outermost), Some(symbol)) = (functions.last_mut(), symbol) {
            outermost.offset_bytes = return_address.checked_sub(symbol.address());
            // Debug information that has lines only knows short names; a mangled name is complete.
            let name = demangle_auto(Cow::Borrowed(symbol.name()), None);
            if outermost.name.is_none() || name != symbol.name() {
                outermost.name = Some(name.into_owned());
            }
        }
        functions
    }
}

/// Functions at an address according to debug information.
fn described_functions(loader: &Loader, address: u64) -> Vec<Function> {
    let mut functions = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return functions };
    while let Ok(Some(frame)) = frames.next() {
        functions.push(Function {
            name: frame.function.as_ref().and_then(|name| name.demangle().ok().map(Cow::into_owned)),
            offset_bytes: None,
            file: frame.location.as_ref().and_then(|location| location.file.map(str::to_owned)),
            line: frame.location.as_ref().and_then(|location| location.line).filter(|line| *line > 0),
            is_inlined: true,
        });
    }
    if let Some(outermost) = functions.last_mut() {
        outermost.is_inlined = false;
    }
    functions
}
