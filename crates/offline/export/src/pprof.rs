//! Protobuf of pprof: blocks and bytes at the peak, never freed, and allocated in all, by call stack.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::MemoryKind;
use crate::protobuf::Message;
use crate::sites::Sites;

/// Fields of `Profile`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING_TABLE: u32 = 6;
const TIME_NANOS: u32 = 9;
const DURATION_NANOS: u32 = 10;
const DEFAULT_SAMPLE_TYPE: u32 = 14;

/// The table of texts: whatever has a name has its number in there.
struct Texts {
    numbers: HashMap<String, u64>,
    list: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.list.len() as u64;
        self.numbers.insert(text.to_owned(), number);
        self.list.push(text.to_owned());
        number
    }
}

/// What a value of a kind is called.
fn word(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Peak => "peak",
        MemoryKind::Alive => "alive",
        MemoryKind::Allocated => "alloc",
    }
}

pub(crate) fn write(sites: &Sites, out: &mut dyn Write) -> io::Result<()> {
    let mut texts = Texts { numbers: HashMap::from([(String::new(), 0)]), list: vec![String::new()] };
    let mut profile = Message::default();
    for kind in MemoryKind::ALL {
        for (what, unit) in [("objects", "count"), ("space", "bytes")] {
            let (name, unit) = (texts.number(&format!("{}_{what}", word(kind))), texts.number(unit));
            profile.message(SAMPLE_TYPE, |value_type| {
                value_type.number(1, name).number(2, unit);
            });
        }
    }
    profile.number(DEFAULT_SAMPLE_TYPE, texts.number("peak_space"));
    // A pool is the outermost frame: sums over pools would count memory twice, as pools of frameworks lie in the driver's.
    let pools = (0..sites.pools.len()).map(|pool| (sites.pool_text(pool), String::new(), 0));
    let frames = sites.frames.iter().map(|frame| (frame.function.clone(), frame.file.clone(), frame.line));
    for (index, (name, file, line)) in pools.chain(frames).enumerate() {
        let id = index as u64 + 1;
        let (name, file) = (texts.number(&name), texts.number(&file));
        profile.message(FUNCTION, |function| {
            function.number(1, id).number(2, name).number(3, name).number(4, file);
        });
        profile.message(LOCATION, |location| {
            location.number(1, id).message(4, |place| {
                place.number(1, id).number(2, u64::from(line));
            });
        });
    }
    let pool_count = sites.pools.len() as u64;
    for site in &sites.sites {
        let frames = site.frames.iter().rev().map(|&frame| pool_count + frame as u64 + 1);
        let amounts = MemoryKind::ALL.map(|kind| site.amount(kind));
        profile.message(SAMPLE, |sample| {
            sample.packed(1, frames.chain([site.pool as u64 + 1]));
            sample.packed(2, amounts.iter().flat_map(|amount| [amount.blocks, amount.bytes]));
        });
    }
    texts.list.iter().for_each(|text| {
        profile.text(STRING_TABLE, text.as_bytes());
    });
    profile.number(TIME_NANOS, sites.first_ns).number(DURATION_NANOS, sites.duration_ns);
    let mut compressed = GzEncoder::new(out, Compression::default());
    compressed.write_all(profile.bytes())?;
    compressed.finish().map(drop)
}
