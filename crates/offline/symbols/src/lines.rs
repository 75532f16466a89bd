//! Printed frames: a recording has many times more stacks than different frames in them.

use msmemscope_event::PythonFrame;
use msmemscope_trace::Module;
use rustc_hash::FxHashMap;

/// With more modules, which is unheard of, they are looked up for every frame.
const MOST_MODULES: usize = 4096;

/// The lines of a native frame, by the module that it is in.
enum Native {
    /// The same module, or none, at any time.
    AnyTime(Box<str>),
    /// By the module's place in memory; none is zero.
    ByModule(FxHashMap<usize, Box<str>>),
}

/// Frames and their lines.
#[derive(Default)]
pub(crate) struct Lines {
    /// Begin, end, and whether it was seen to go, of every module.
    modules: Vec<(u64, u64, bool)>,
    native: FxHashMap<u64, Native>,
    python: FxHashMap<(u32, u32), Box<str>>,
}

impl Lines {
    pub(crate) fn of(modules: &[Module]) -> Self {
        let range = |module: &Module| (module.start_address, module.end_address, module.gone_monotonic_ns.is_some());
        Self { modules: modules.iter().map(range).collect(), ..Self::default() }
    }

    /// The lines of a native frame. Which module it is in is asked only where that depends on the time.
    pub(crate) fn native<'m>(
        &mut self,
        address: u64,
        module: impl FnOnce() -> Option<&'m Module>,
        print: impl Fn(&mut String),
    ) -> &str {
        let modules = &self.modules;
        let known = self.native.entry(address).or_insert_with(|| match is_timeless(modules, address) {
            true => Native::AnyTime(printed(&print)),
            false => Native::ByModule(FxHashMap::default()),
        });
        match known {
            Native::AnyTime(line) => line,
            Native::ByModule(lines) => {
                let module = module().map_or(0, |module| std::ptr::from_ref(module).addr());
                lines.entry(module).or_insert_with(|| printed(print))
            }
        }
    }

    /// The line of a Python frame.
    pub(crate) fn python(&mut self, frame: PythonFrame, print: impl FnOnce(&mut String)) -> &str {
        let key = (frame.code.0, frame.instruction_offset);
        self.python.entry(key).or_insert_with(|| printed(print))
    }
}

/// Whether only one module ever was at an address, or none.
fn is_timeless(modules: &[(u64, u64, bool)], address: u64) -> bool {
    let mut there = modules.iter().filter(|(start, end, _)| (*start..*end).contains(&address));
    modules.len() <= MOST_MODULES && there.next().is_none_or(|(.., is_gone)| !is_gone) && there.next().is_none()
}

fn printed(print: impl FnOnce(&mut String)) -> Box<str> {
    let mut text = String::new();
    print(&mut text);
    text.into()
}

#[cfg(test)]
mod tests {
    use msmemscope_event::{CodeId, ModuleId, StringId};

    use super::*;

    #[test]
    fn a_frame_is_printed_once_and_once_per_module_where_several_were() {
        let module = |start_address, end_address, gone_monotonic_ns| Module {
            id: ModuleId(1),
            start_address,
            end_address,
            load_bias: 0,
            path: StringId::NONE,
            build_id: Vec::new(),
            seen_monotonic_ns: 0,
            gone_monotonic_ns,
        };
        let modules = [module(10, 20, None), module(15, 30, None), module(40, 50, Some(7))];
        let mut lines = Lines::of(&modules);
        for round in ["first", "second"] {
            let print = |name: &'static str| move |line: &mut String| line.push_str(&format!("{name} {round}"));
            for alone in [5, 12, 25] {
                let line = lines.native(alone, || panic!("it is always the same"), print("alone"));
                assert_eq!(line, "alone first");
            }
            for shared in [16, 45] {
                assert_eq!(lines.native(shared, || None, print("none")), "none first");
                assert_eq!(lines.native(shared, || Some(&modules[2]), print("gone")), "gone first");
            }
            let frame = PythonFrame { code: CodeId(1), instruction_offset: 2 };
            assert_eq!(lines.python(frame, print("python")), "python first");
        }
    }
}
