//! What PyTorch's pool holds is known at every one of its blocks, although only what changes is written down.

use std::collections::{BTreeMap, HashMap};

use msmemscope_event::{Device, Fact, Pool};
use msmemscope_trace::Trace;
use standin_truth::{Entry, Kind};

use crate::support::{Lab, count, run};

/// For every device: its blocks in order, whether they come, where they are, and what the pool holds.
type Blocks = BTreeMap<Device, Vec<(bool, u64, u64)>>;

/// Follows what is told.
#[derive(Default)]
struct Book {
    totals: HashMap<Device, u64>,
    blocks: Blocks,
}

impl Book {
    fn block(&mut self, device: Option<Device>, address: u64) {
        let begins = device.is_some();
        // A free does not say its device; the address does.
        let device = device.unwrap_or(Device::Npu((address >> 40 & 1) as u16));
        self.blocks.entry(device).or_default().push((begins, address, self.totals[&device]));
    }
}

fn recorded(trace: &Trace) -> Blocks {
    let mut book = Book::default();
    let mut records = trace.records();
    while let Some(record) = records.next() {
        match record.fact {
            Fact::HeapRegistered { properties, size_bytes, .. } => {
                book.totals.insert(properties.device, size_bytes);
            }
            Fact::Allocation { properties, address, .. } => book.block(Some(properties.device), address),
            Fact::Free { address, .. } => book.block(None, address),
            _ => {}
        }
    }
    book.blocks
}

fn told(entries: &[Entry], process: u32) -> Blocks {
    let mut book = Book::default();
    for record in entries.iter().filter(|entry| entry.process == process).map(|entry| &entry.record) {
        let device = Device::from_id(i64::from(record.device));
        match record.kind {
            Kind::HeapRegister => {
                book.totals.insert(device, record.size_bytes);
            }
            Kind::RegionRegister => book.block(Some(device), record.address),
            Kind::RegionUnregister => book.block(None, record.address),
            _ => {}
        }
    }
    book.blocks
}

#[test]
fn what_the_pool_holds_is_known_at_every_block() {
    const THREADS: usize = 4;
    const OPERATIONS: usize = 5_000;
    let lab = Lab::new();
    let program = lab.compile("pool_totals.c", include_str!("../programs/pool_totals.c"), &["ms_tools_ext", "pthread"]);
    let mut command = lab.plain(&program);
    command.args([THREADS, OPERATIONS].map(|number| number.to_string()));
    lab.record(&mut command);
    let output = run(&mut command);
    assert!(output.status.success(), "{output:?}");
    let entries = standin_truth::read_directory(&lab.log).expect("the log of the device");
    let traces = lab.traces();
    assert_eq!(traces.len(), 2, "parent and child");
    let mut events = 0;
    for trace in &traces {
        let (recorded, told) = (recorded(trace), told(&entries, trace.process_id()));
        assert_eq!(recorded.len(), 2, "the devices");
        assert!(recorded == told, "totals differ in process {}", trace.process_id());
        let messages = count(
            trace,
            |fact| matches!(fact, Fact::HeapRegistered { properties, .. } if properties.pool == Pool::PytorchCaching),
        );
        let blocks: usize = told.values().map(Vec::len).sum();
        assert!(messages * 50 < blocks, "{messages} totals for {blocks} blocks");
        assert_eq!(trace.completeness().losses, []);
        events += blocks;
    }
    assert_eq!(events, (THREADS + 2) * OPERATIONS);
}
