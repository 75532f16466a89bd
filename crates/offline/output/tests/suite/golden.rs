//! Rows as other tools expect them, byte for byte.

use msmemscope_event::{
    AccessKind, AllocationInterface, BlockProperties, Device, Fact, Framework, KernelPhase, MemoryType, PageType, Pool,
    RecordingState, SnapshotNumbers, StringId, SystemEvent,
};
use msmemscope_output::FinishOptions;

use crate::support::Recording;

const DEVICE: Device = Device::Npu(0);
const ADDRESS: u64 = 0x3039;

fn driver(interface: AllocationInterface) -> BlockProperties {
    BlockProperties {
        pool: Pool::Hal,
        device: DEVICE,
        memory_type: MemoryType::Device,
        page_type: PageType::Normal,
        interface,
        module_id: 1,
    }
}

fn lines_of(recording: &mut Recording, options: &FinishOptions<'_>) -> Vec<String> {
    recording.close(1000);
    recording.finish(options);
    recording.csv_lines(DEVICE)
}

fn csv(recording: &mut Recording) -> Vec<String> {
    lines_of(recording, &FinishOptions::default())
}

#[test]
fn driver_memory() {
    let mut recording = Recording::new();
    let properties = driver(AllocationInterface::Create);
    recording.record(3, Fact::Allocation { properties, address: ADDRESS, size_bytes: 10 });
    recording.record(54, Fact::Free { properties, address: ADDRESS });
    assert_eq!(
        csv(&mut recording),
        [
            r#"0,MALLOC,HAL,N/A,3,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,used:10,page_type:normal,alloc_type:create}",,"#,
            r#"1,FREE,HAL,N/A,54,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,used:0}",,"#,
        ]
    );
}

#[test]
fn pool_memory_with_accesses() {
    let mut recording = Recording::new();
    let names = ["aten.add", "torch.float16", "torch.Size([1,5])", "addOperation", "FLOAT", "NZD", "[1,5,]"];
    let [operator, element_type, shape, atb_operator, atb_type, format, atb_shape] =
        names.map(|name| recording.string(name));
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    recording.record(2, Fact::HeapRegistered { properties, address: ADDRESS, size_bytes: 10 });
    recording.record(3, Fact::Allocation { properties, address: ADDRESS, size_bytes: 10 });
    let access = Fact::Access {
        kind: AccessKind::Unknown,
        framework: Framework::Aten,
        device: DEVICE,
        operator,
        address: ADDRESS,
        size_bytes: 10,
        element_type,
        shape,
        format: StringId::NONE,
        output_position: 0,
    };
    recording.record(13, access);
    recording.record(
        14,
        Fact::Access {
            kind: AccessKind::Write,
            framework: Framework::Atb,
            device: DEVICE,
            operator: atb_operator,
            address: ADDRESS + 5,
            size_bytes: 5,
            element_type: atb_type,
            shape: atb_shape,
            format,
            output_position: 1,
        },
    );
    let lines = csv(&mut recording);
    assert_eq!(
        lines[..3],
        [
            r#"0,MALLOC,PTA,N/A,3,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,used:10,total:10}",,"#,
            r#"1,ACCESS,UNKNOWN,aten.add,13,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,type:PTA,dtype:torch.float16,shape:torch.Size([1,5])}",,"#,
            r#"2,ACCESS,WRITE,addOperation,14,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x000000000000303e,size:5,type:ATB,dtype:FLOAT,format:NZD,shape:[1,5,]}",,"#,
        ]
    );
    assert_eq!(
        lines[3],
        r#"3,FREE,PTA,N/A,1000,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,shadow:true}",,"#
    );
}

#[test]
fn launches() {
    let mut recording = Recording::new();
    let names = [
        "aten.add",
        "operation",
        "add01",
        "path:0/0_123/operation,workspace_ptr:0x12313,workspace_size:12",
        "path:0/0_123/add",
    ];
    let [aten, atb, kernel, atb_detail, kernel_detail] = names.map(|name| recording.string(name));
    let none = StringId::NONE;
    let operator = |framework, name, detail| Fact::OperatorBegin { framework, device: DEVICE, name, detail };
    let kernel =
        |phase, detail| Fact::Kernel { phase, device: DEVICE, name: kernel, stream_id: 111, task_id: 222, detail };
    recording.record(12, operator(Framework::Aten, aten, none));
    recording.record(12, operator(Framework::Atb, atb, atb_detail));
    recording.record(12, kernel(KernelPhase::Launch, none));
    recording.record(13, kernel(KernelPhase::ExecuteStart, none));
    recording.record(14, kernel(KernelPhase::Start, kernel_detail));
    let end = Fact::OperatorEnd { framework: Framework::Aten, device: DEVICE, name: aten, detail: none };
    recording.record(15, end);
    assert_eq!(
        csv(&mut recording),
        [
            r#"0,OP_LAUNCH,ATEN_START,aten.add,12,123,1234,0,N/A,,,"#,
            r#"1,OP_LAUNCH,ATB_START,operation,12,123,1234,0,N/A,"{path:0/0_123/operation,workspace_ptr:0x12313,workspace_size:12}",,"#,
            r#"2,KERNEL_LAUNCH,KERNEL_LAUNCH,add01,12,123,1234,0,N/A,"{streamId:111,taskId:222}",,"#,
            r#"3,KERNEL_LAUNCH,KERNEL_EXECUTE_START,add01,13,N/A,N/A,0,N/A,"{streamId:111,taskId:222}",,"#,
            r#"4,KERNEL_LAUNCH,KERNEL_START,add01,14,123,1234,0,N/A,"{path:0/0_123/add}",,"#,
            r#"5,OP_LAUNCH,ATEN_END,aten.add,15,123,1234,0,N/A,,,"#,
        ]
    );
}

/// Operators of a graph tell their place when they begin; it is told again when they end.
#[test]
fn operators_and_kernels_with_a_place() {
    let mut recording = Recording::new();
    let [graph, node, kernel] = ["layer0", "LinearOperation", "0_MatMulKernel"].map(|name| recording.string(name));
    let framework = Framework::Atb;
    let begin = |name, path: &'static [u8], workspace_address, workspace_bytes| Fact::PlacedOperatorBegin {
        framework,
        device: DEVICE,
        name,
        workspace_address,
        workspace_bytes,
        path,
    };
    let end = |name| Fact::OperatorEnd { framework, device: DEVICE, name, detail: StringId::NONE };
    let kernel =
        |phase| Fact::PlacedKernel { phase, device: DEVICE, name: kernel, path: b"0_123/0/layer0/0/0_MatMulKernel" };
    recording.record(12, begin(graph, b"0_123/0/layer0", 0x12313, 12));
    recording.record(13, begin(node, b"0_123/0/layer0/0", 0, 0));
    recording.record(14, kernel(KernelPhase::Start));
    recording.record(15, kernel(KernelPhase::End));
    recording.record(16, end(node));
    recording.record(17, end(graph));
    assert_eq!(
        csv(&mut recording),
        [
            r#"0,OP_LAUNCH,ATB_START,layer0,12,123,1234,0,N/A,"{path:0_123/0/layer0,workspace_ptr:0x12313,workspace_size:12}",,"#,
            r#"1,OP_LAUNCH,ATB_START,LinearOperation,13,123,1234,0,N/A,"{path:0_123/0/layer0/0,workspace_ptr:0x0,workspace_size:0}",,"#,
            r#"2,KERNEL_LAUNCH,KERNEL_START,0_MatMulKernel,14,123,1234,0,N/A,"{path:0_123/0/layer0/0/0_MatMulKernel}",,"#,
            r#"3,KERNEL_LAUNCH,KERNEL_END,0_MatMulKernel,15,123,1234,0,N/A,"{path:0_123/0/layer0/0/0_MatMulKernel}",,"#,
            r#"4,OP_LAUNCH,ATB_END,LinearOperation,16,123,1234,0,N/A,"{path:0_123/0/layer0/0,workspace_ptr:0x0,workspace_size:0}",,"#,
            r#"5,OP_LAUNCH,ATB_END,layer0,17,123,1234,0,N/A,"{path:0_123/0/layer0,workspace_ptr:0x12313,workspace_size:12}",,"#,
        ]
    );
}

#[test]
fn marks_ranges_and_system_events() {
    let mut recording = Recording::new();
    let domain = recording.string("my domain");
    let none = StringId::NONE;
    recording.record(11, Fact::Recording { state: RecordingState::On });
    recording.record(12, Fact::System { event: SystemEvent::AclInit, device: Device::Unknown, result: 0 });
    recording.record(13, Fact::RangeBegin { domain: none, device: DEVICE, range_id: 7, message: b"step start" });
    recording.record(14, Fact::Mark { domain, device: DEVICE, message: b"say \"a,b\"" });
    recording.record(15, Fact::RangeEnd { domain: none, device: DEVICE, range_id: 7 });
    recording.record(16, Fact::Step { device: DEVICE, number: 1 });
    recording.record(17, Fact::System { event: SystemEvent::AclFinalize, device: Device::Unknown, result: 5 });
    recording.record(18, Fact::Recording { state: RecordingState::Off });
    assert_eq!(
        csv(&mut recording),
        [
            r#"0,SYSTEM,START_TRACE,N/A,11,123,1234,N/A,N/A,,,"#,
            r#"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,"#,
            r#"2,MSTX,Range_start,"step start",13,123,1234,0,N/A,,,"#,
            r#"3,MSTX,Mark,"say ""a,b""",14,123,1234,0,N/A,"{domain:my domain}",,"#,
            r#"4,MSTX,Range_end,"Range end from id 7",15,123,1234,0,N/A,,,"#,
            r#"5,SYSTEM,STEP,1,16,123,1234,0,N/A,,,"#,
            r#"6,SYSTEM,ACL_FINI,N/A,17,123,1234,N/A,N/A,"{result:5}",,"#,
            r#"7,SYSTEM,STOP_TRACE,N/A,18,123,1234,N/A,N/A,,,"#,
        ]
    );
}

#[test]
fn owners_where_asked_for() {
    let mut recording = Recording::new();
    let [gradient, operators, memscope] = ["gradient", "ops", "memscope"].map(|name| recording.string(name));
    let caching = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    recording.record(1, Fact::HeapRegistered { properties: caching, address: ADDRESS, size_bytes: 10 });
    recording.record(2, Fact::LabelPush { level: 4, label: operators });
    recording.record(2, Fact::LabelPush { level: 5, label: memscope });
    recording.record(3, Fact::Allocation { properties: caching, address: ADDRESS, size_bytes: 10 });
    recording.record(4, Fact::LabelAddress { address: ADDRESS, level: 3, label: gradient });
    let properties = driver(AllocationInterface::Create);
    recording.record(5, Fact::Allocation { properties, address: ADDRESS, size_bytes: 10 });
    let lines = lines_of(&mut recording, &FinishOptions { owners: true, ..FinishOptions::default() });
    assert_eq!(
        lines[..2],
        [
            r#"0,MALLOC,PTA,N/A,3,123,1234,0,0x0000000000003039,"{allocation_id:1,addr:0x0000000000003039,size:10,used:10,total:10,owner:PTA@gradient@ops@memscope}",,"#,
            r#"1,MALLOC,HAL,N/A,5,123,1234,0,0x0000000000003039,"{allocation_id:2,addr:0x0000000000003039,size:10,used:10,owner:CANN@IDEDD@ops@memscope,page_type:normal,alloc_type:create}",,"#,
        ]
    );
}

#[test]
fn failures_and_snapshots() {
    let mut recording = Recording::new();
    let name = recording.string("OOM_Snapshot");
    let properties = driver(AllocationInterface::Alloc);
    recording.record(5, Fact::AllocationFailed { properties, size_bytes: 99, flag: 7, error: 6 });
    recording.record(6, Fact::AllocationFailed { properties, size_bytes: 98, flag: 7, error: 3 });
    recording.record(7, Fact::FreeFailed { properties, address: ADDRESS, error: -2 });
    let numbers = SnapshotNumbers {
        reserved_bytes: 200,
        maximum_reserved_bytes: 300,
        allocated_bytes: 50,
        maximum_allocated_bytes: 60,
        total_bytes: 1000,
        free_bytes: 400,
    };
    recording.record(8, Fact::Snapshot { device: DEVICE, name, numbers });
    assert_eq!(
        csv(&mut recording),
        [
            r#"0,OOM_DETAIL,OOM_TRIGGER,OOM_Trigger,5,123,1234,0,N/A,"{func:halMemAlloc,req_size:99,flag:7}",,"#,
            r#"1,SYSTEM,ALLOCATION_FAILED,halMemAlloc,6,123,1234,0,N/A,"{func:halMemAlloc,req_size:98,flag:7,error:3}",,"#,
            r#"2,SYSTEM,FREE_FAILED,halMemFree,7,123,1234,0,N/A,"{func:halMemFree,addr:0x0000000000003039,error:-2}",,"#,
            r#"3,SNAPSHOT,SNAPSHOT,OOM_Snapshot,8,123,1234,0,N/A,"{reserved:200,max_reserved:300,allocated:50,max_allocated:60,total:1000,free:400,device_rate:60.000000,reserved_rate:25.000000}",,"#,
        ]
    );
}

#[test]
fn every_pool_has_its_event_type_and_keys() {
    let mut recording = Recording::new();
    let framework = |pool, device| BlockProperties::framework(pool, device);
    let heap = framework(Pool::Atb, DEVICE);
    recording.record(1, Fact::HeapRegistered { properties: heap, address: 1, size_bytes: 500 });
    let mut huge = driver(AllocationInterface::Alloc);
    huge.page_type = PageType::Huge;
    let allocations = [
        (huge, 0),
        (framework(Pool::PytorchWorkspace, DEVICE), 0),
        (framework(Pool::Mindspore, DEVICE), 0),
        (framework(Pool::Atb, DEVICE), 9),
    ];
    for (number, (properties, handle)) in (0u64..).zip(allocations) {
        let address = 0x1000 * (number + 1);
        let fact = match handle {
            0 => Fact::Allocation { properties, address, size_bytes: 8 },
            handle => Fact::AllocationWithHandle { properties, address, size_bytes: 8, handle },
        };
        recording.record(2 + number, fact);
    }
    let pinned = BlockProperties { pool: Pool::HostPinned, device: Device::Host, ..driver(AllocationInterface::Alloc) };
    recording.record(8, Fact::Allocation { properties: pinned, address: 0x5000, size_bytes: 8 });
    let tensor = framework(Pool::HostTensor, Device::Host);
    recording.record(9, Fact::Allocation { properties: tensor, address: 0x6000, size_bytes: 8 });
    let lines = csv(&mut recording);
    let row = |number: u64, pool: &str, attributes: &str| {
        format!(
            "{number},MALLOC,{pool},N/A,{},123,1234,0,0x{:016x},\"{{allocation_id:{},addr:0x{:016x},size:8,{attributes}}}\",,",
            number + 2,
            0x1000 * (number + 1),
            number + 1,
            0x1000 * (number + 1),
        )
    };
    assert_eq!(
        lines[..4],
        [
            row(0, "HAL", "used:8,page_type:huge,alloc_type:alloc"),
            row(1, "PTA_WORKSPACE", "used:8,total:0"),
            row(2, "MINDSPORE", "used:8,total:0"),
            row(3, "ATB", "used:8,total:500"),
        ]
    );
    let host = recording.csv_lines(Device::Host);
    assert_eq!(
        host[..2],
        [
            r#"4,MALLOC,HOST_PINNED,N/A,8,123,1234,cpu,0x0000000000005000,"{allocation_id:5,addr:0x0000000000005000,size:8,pinned:true,used:8}",,"#,
            r#"5,MALLOC,HOST,N/A,9,123,1234,cpu,0x0000000000006000,"{allocation_id:6,addr:0x0000000000006000,size:8,total:8}",,"#,
        ]
    );
}

#[test]
fn allocations_name_the_stream_they_are_for() {
    let mut recording = Recording::new();
    let properties = BlockProperties::framework(Pool::PytorchCaching, DEVICE);
    recording.record(1, Fact::AllocationOnStream { properties, address: 0x1000, size_bytes: 8, stream: 96 });
    recording.record(2, Fact::Free { properties, address: 0x1000 });
    let lines = csv(&mut recording);
    assert!(
        lines[0].contains("{allocation_id:1,addr:0x0000000000001000,size:8,used:8,total:0,stream:96}"),
        "{lines:?}"
    );
    assert!(!lines[1].contains("stream"), "{lines:?}");
}

#[test]
fn card_samples_appear_in_later_rows() {
    let mut recording = Recording::new();
    recording.record(1, Fact::CardSample { device: DEVICE, used_bytes: 70, process_bytes: 30, total_bytes: 100 });
    recording.record(2, Fact::Recording { state: RecordingState::On });
    let properties = driver(AllocationInterface::Alloc);
    recording.record(3, Fact::Allocation { properties, address: ADDRESS, size_bytes: 10 });
    let lines = csv(&mut recording);
    assert_eq!(lines[0], r#"0,SYSTEM,START_TRACE,N/A,2,123,1234,N/A,N/A,"{free:30,total:100}",,"#);
    assert!(lines[1].contains("used:10,process_used:30,device_used:70,page_type:normal"), "{}", lines[1]);
}
