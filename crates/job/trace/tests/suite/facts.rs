//! Every fact survives the way through the file.

use msmemscope_event::*;
use msmemscope_trace::Trace;
use msmemscope_trace::codec::{self, CodecState, Decoded};
use proptest::prelude::*;

use crate::support::{Recording, append};

fn any_properties() -> impl Strategy<Value = BlockProperties> {
    (0..1u32 << 31).prop_map(BlockProperties::unpack)
}

fn any_device() -> impl Strategy<Value = Device> {
    (0..4096u32).prop_map(Device::from_code)
}

fn any_string_id() -> impl Strategy<Value = StringId> {
    any::<u32>().prop_map(StringId)
}

/// Texts live for the whole test run; the facts only borrow them.
fn any_text() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..80), prop::collection::vec(any::<u8>(), 0..2000),]
        .prop_map(|text| &*text.leak())
}

fn any_code<T: Coded + std::fmt::Debug>() -> impl Strategy<Value = T> {
    (0..12u64).prop_map(T::from_code)
}

fn any_numbers() -> impl Strategy<Value = SnapshotNumbers> {
    any::<[u64; 6]>().prop_map(|numbers| SnapshotNumbers {
        reserved_bytes: numbers[0],
        maximum_reserved_bytes: numbers[1],
        allocated_bytes: numbers[2],
        maximum_allocated_bytes: numbers[3],
        total_bytes: numbers[4],
        free_bytes: numbers[5],
    })
}

fn any_memory_fact() -> impl Strategy<Value = Fact<'static>> {
    let numbers = || (any_properties(), any::<u64>(), any::<u64>(), any::<u64>(), any::<i64>());
    prop_oneof![
        numbers().prop_map(|(properties, address, size_bytes, ..)| Fact::Allocation {
            properties,
            address,
            size_bytes
        }),
        numbers().prop_map(|(properties, address, size_bytes, handle, _)| Fact::AllocationWithHandle {
            properties,
            address,
            size_bytes,
            handle
        }),
        numbers().prop_map(|(properties, address, size_bytes, stream, _)| Fact::AllocationOnStream {
            properties,
            address,
            size_bytes,
            stream: stream as u32
        }),
        numbers().prop_map(|(properties, address, ..)| Fact::Free { properties, address }),
        numbers().prop_map(|(properties, handle, ..)| Fact::FreeByHandle { properties, handle }),
        numbers().prop_map(|(properties, address, size_bytes, ..)| Fact::HeapRegistered {
            properties,
            address,
            size_bytes
        }),
        numbers().prop_map(|(properties, address, ..)| Fact::HeapUnregistered { properties, address }),
        numbers().prop_map(|(properties, size_bytes, flag, _, error)| Fact::AllocationFailed {
            properties,
            size_bytes,
            flag,
            error
        }),
        numbers().prop_map(|(properties, address, _, _, error)| Fact::FreeFailed { properties, address, error }),
    ]
}

fn any_activity_fact() -> impl Strategy<Value = Fact<'static>> {
    let names = || (any_string_id(), any_string_id(), any_string_id(), any_string_id());
    prop_oneof![
        (any_code(), any_device(), names()).prop_map(|(framework, device, (name, detail, ..))| Fact::OperatorBegin {
            framework,
            device,
            name,
            detail
        }),
        (any_code(), any_device(), any_string_id(), any::<(u64, u64)>()).prop_map(
            |(framework, device, name, (workspace_address, workspace_bytes))| Fact::PlacedOperatorBegin {
                framework,
                device,
                name,
                workspace_address,
                workspace_bytes,
                path: b"0_1/7/3_LayerOperation/1_LinearOperation",
            }
        ),
        (any_code(), any::<u64>()).prop_map(|(phase, address)| Fact::PreparedWork { phase, address }),
        (any_device(), any_string_id(), any::<u32>(), any::<u32>()).prop_map(|(device, name, stream_id, task_id)| {
            Fact::KernelCaptured { device, name, stream_id, task_id }
        }),
        (any_code(), any_device(), any_string_id()).prop_map(|(phase, device, name)| Fact::PlacedKernel {
            phase,
            device,
            name,
            path: b""
        }),
        (any_code(), any_device(), names()).prop_map(|(framework, device, (name, detail, ..))| Fact::OperatorEnd {
            framework,
            device,
            name,
            detail
        }),
        (any_code(), any_code(), any_device(), names(), any::<(u64, u64, u32)>()).prop_map(
            |(kind, framework, device, (operator, element_type, shape, format), numbers)| Fact::Access {
                kind,
                framework,
                device,
                operator,
                address: numbers.0,
                size_bytes: numbers.1,
                element_type,
                shape,
                format,
                output_position: numbers.2,
            }
        ),
        (any_code(), any_device(), names(), any::<(u32, u32)>()).prop_map(
            |(phase, device, (name, detail, ..), (stream_id, task_id))| Fact::Kernel {
                phase,
                device,
                name,
                stream_id,
                task_id,
                detail
            }
        ),
        (any_string_id(), any_device(), any_text()).prop_map(|(domain, device, message)| Fact::Mark {
            domain,
            device,
            message
        }),
        (any_string_id(), any_device(), any::<u64>(), any_text())
            .prop_map(|(domain, device, range_id, message)| { Fact::RangeBegin { domain, device, range_id, message } }),
        (any_string_id(), any_device(), any::<u64>()).prop_map(|(domain, device, range_id)| Fact::RangeEnd {
            domain,
            device,
            range_id
        }),
        (any_code(), any_device(), any::<i64>()).prop_map(|(event, device, result)| Fact::System {
            event,
            device,
            result
        }),
        (any_device(), any::<u64>()).prop_map(|(device, number)| Fact::Step { device, number }),
        (any_code(), any_device()).prop_map(|(phase, device)| Fact::Autograd { phase, device }),
        (any_code(), any_device(), any::<u64>()).prop_map(|(kind, device, loop_id)| Fact::LoopTurn {
            kind,
            device,
            loop_id
        }),
        any_string_id().prop_map(|name| Fact::ModuleBegin { name }),
        any_string_id().prop_map(|name| Fact::ModuleEnd { name }),
        (any::<u64>(), any_string_id()).prop_map(|(address, path)| Fact::Holder { address, path }),
        (any_device(), any_string_id(), any_numbers()).prop_map(|(device, name, numbers)| Fact::Snapshot {
            device,
            name,
            numbers
        }),
        (any_device(), any::<[u64; 7]>()).prop_map(|(device, numbers)| Fact::PoolRefusal {
            device,
            refusal: PoolRefusal {
                requested_bytes: numbers[0],
                limit_bytes: numbers[1],
                reserved_bytes: numbers[2],
                free_bytes: numbers[3],
                total_bytes: numbers[4],
                stream: numbers[5],
                segments: numbers[6],
            }
        }),
        (any_device(), any::<[u64; 5]>(), any::<u32>()).prop_map(|(device, numbers, traits)| Fact::PoolSegment {
            device,
            segment: PoolSegment {
                address: numbers[0],
                size_bytes: numbers[1],
                unused_bytes: numbers[2],
                largest_gap_bytes: numbers[3],
                stream: numbers[4],
                traits,
            }
        }),
        (any_device(), any::<[u64; 3]>()).prop_map(|(device, bytes)| Fact::CardSample {
            device,
            used_bytes: bytes[0],
            process_bytes: bytes[1],
            total_bytes: bytes[2]
        }),
        (any::<u32>(), any_string_id()).prop_map(|(level, label)| Fact::LabelPush { level, label }),
        (any::<u32>(), any_string_id()).prop_map(|(level, label)| Fact::LabelPop { level, label }),
        (any::<u64>(), any::<u32>(), any_string_id()).prop_map(|(address, level, label)| Fact::LabelAddress {
            address,
            level,
            label
        }),
        (names(), any::<(u32, bool, u64, u64, u64)>(), any_text()).prop_map(
            |((name, operator, ..), numbers, detail)| {
                Fact::Watch {
                    name,
                    operator,
                    output_position: numbers.0,
                    after: numbers.1,
                    address: numbers.2,
                    size_bytes: numbers.3,
                    content_hash: numbers.4,
                    detail,
                }
            }
        ),
        any_code().prop_map(|state| Fact::Recording { state }),
        (any_code(), any::<u64>()).prop_map(|(reason, count)| Fact::Loss { reason, count }),
        (any_code(), any::<u32>(), any_string_id()).prop_map(|(phase, code, name)| Fact::PythonCall {
            phase,
            code: CodeId(code),
            name
        }),
    ]
}

fn any_definition() -> impl Strategy<Value = Fact<'static>> {
    prop_oneof![
        (any_string_id(), any_text()).prop_map(|(id, text)| Fact::DefineString { id, text }),
        (any::<u32>(), any_text()).prop_map(|(id, frames)| Fact::DefineNativeStack { id: StackId(id), frames }),
        (any::<u32>(), any_text()).prop_map(|(id, frames)| Fact::DefinePythonStack { id: StackId(id), frames }),
        (any::<[u32; 5]>(), any_text()).prop_map(|(numbers, line_table)| Fact::DefineCode {
            id: CodeId(numbers[0]),
            name: StringId(numbers[1]),
            file: StringId(numbers[2]),
            first_line: numbers[3],
            python_version: numbers[4],
            line_table,
        }),
        (any::<(u32, u32)>(), any::<[u64; 3]>(), any_text()).prop_map(|(ids, addresses, build_id)| {
            Fact::DefineModule {
                id: ModuleId(ids.0),
                start_address: addresses[0],
                end_address: addresses[1],
                load_bias: addresses[2],
                path: StringId(ids.1),
                build_id,
            }
        }),
        any::<u32>().prop_map(|id| Fact::ModuleGone { id: ModuleId(id) }),
        any_text().prop_map(|text| Fact::DeviceMap { text }),
        (any_code(), any_text()).prop_map(|(key, text)| Fact::ProcessInfo { key, text }),
        (any_code(), any_text()).prop_map(|(severity, text)| Fact::Message { severity, text }),
        any::<i64>().prop_map(|wall_offset_ns| Fact::ClockAnchor { wall_offset_ns }),
        any::<u32>().prop_map(|thread_id| Fact::Thread { thread_id }),
        (50..64u8, any_text()).prop_map(|(kind, payload)| Fact::Unknown { kind, payload }),
    ]
}

fn any_fact() -> impl Strategy<Value = Fact<'static>> {
    prop_oneof![any_memory_fact(), any_activity_fact(), any_definition()]
}

proptest! {
    #[test]
    fn facts_survive_encoding(facts in prop::collection::vec((any::<u64>(), any::<(u32, u32)>(), any_fact()), 1..40)) {
        let mut buffer = vec![0u8; facts.iter().map(|(.., fact)| codec::largest_encoded_bytes(fact)).sum()];
        let mut state = CodecState::new(5, 6);
        let mut used_bytes = 0;
        for (time, (native, python), fact) in &facts {
            // SAFETY: the buffer has room for the largest encoding of every fact.
            used_bytes += unsafe {
                let destination = buffer.as_mut_ptr().add(used_bytes);
                codec::encode(&mut state, *time, StackId(*native), StackId(*python), fact, destination)
            };
        }
        let mut state = CodecState::new(5, 6);
        let mut thread_id = 6;
        let mut rest = &buffer[..used_bytes];
        for (time, (native, python), fact) in &facts {
            if let Fact::Thread { thread_id: next } = fact {
                thread_id = *next;
            }
            let Decoded::Record(record, taken_bytes) = codec::decode(&mut state, rest) else {
                panic!("cannot decode {fact:?}");
            };
            let expected = Record {
                monotonic_ns: *time,
                thread_id,
                native_stack: StackId(*native),
                python_stack: StackId(*python),
                fact: *fact,
            };
            prop_assert_eq!(record, expected);
            rest = &rest[taken_bytes..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut state = CodecState::new(0, 0);
        let mut rest = &bytes[..];
        while let Decoded::Record(_, taken_bytes) | Decoded::Damaged(taken_bytes) = codec::decode(&mut state, rest) {
            rest = &rest[taken_bytes..];
        }
    }
}

#[test]
fn a_typical_event_takes_at_most_sixteen_bytes() {
    let recording = Recording::new(false, u64::MAX);
    let mut chunk = recording.chunk(9, 1_000);
    let mut time = 1_000;
    for round in 0..2_000u64 {
        let address = 0x12c0_4140_0000 + (round * 7919 % 4096) * 0x8_0000;
        time += 1_700;
        assert!(append(&mut chunk, time, &crate::support::allocation(address, 512 * (1 + round % 40_000))));
        time += 900;
        assert!(append(&mut chunk, time, &crate::support::free(address)));
    }
    let completeness = Trace::open(&recording.path).expect("trace").completeness().clone();
    assert_eq!(completeness.records, 4_000);
    assert!(completeness.record_bytes <= 4_000 * 14, "{} bytes", completeness.record_bytes);
}
