//! mstx: the documented sample, the search for a tool, and what a tool receives.

use crate::{run, success, workspace};
use standin_truth::Kind;

/// The sample of the user guide.
const SAMPLE: &str = r#"
#include <iostream>
#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
int main(void)
{
    mstxMarkA("MarkA", nullptr);
    uint64_t id_1 = mstxRangeStartA("step start", nullptr);
    std::cout << id_1;
    mstxRangeEnd(id_1);
    return 0;
}
"#;

/// A tool that prints what it receives.
const TOOL: &str = r#"
#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"
#include <stdio.h>
#include <stdlib.h>
static void mark(const char *message, aclrtStream stream) { (void)stream; printf("mark %s;", message); }
static mstxRangeId start(const char *message, aclrtStream stream) { (void)stream; printf("start %s;", message); return 7; }
static void end(mstxRangeId id) { printf("end %d;", (int)id); }
static mstxDomainHandle_t create(const char *name) { printf("domain %s;", name); return (mstxDomainHandle_t)0x10; }
static mstxMemHeapHandle_t heap(mstxDomainHandle_t domain, mstxMemHeapDesc_t const *desc)
{
    mstxMemVirtualRangeDesc_t const *range = desc->typeSpecificDesc;
    printf("heap %p %u %d;", (void *)domain, range->deviceId, (int)range->size);
    return (mstxMemHeapHandle_t)range->ptr;
}
static void regions(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const *desc)
{
    printf("regions %p %d;", (void *)domain, (int)desc->regionCount);
}
int InitInjectionMstx(mstxGetModuleFuncTableFunc get)
{
    mstxFuncTable core, domain, memory;
    unsigned sizes[3];
    if (get(MSTX_API_MODULE_CORE, &core, &sizes[0]) || get(MSTX_API_MODULE_CORE_DOMAIN, &domain, &sizes[1]) ||
        get(MSTX_API_MODULE_CORE_MEM, &memory, &sizes[2]) || get((mstxFuncModule)9, &core, &sizes[0]) == 0) {
        return 1;
    }
    printf("tables %u %u %u;", sizes[0], sizes[1], sizes[2]);
    *core[1] = (mstxFuncPointer)mark;
    *core[2] = (mstxFuncPointer)start;
    *core[3] = (mstxFuncPointer)end;
    *domain[1] = (mstxFuncPointer)create;
    *memory[1] = (mstxFuncPointer)heap;
    *memory[3] = (mstxFuncPointer)regions;
    return getenv("REFUSE") != NULL;
}
"#;

/// A program that uses everything, with the inline functions unless `MSTX_NO_IMPL` is put in front.
const PROGRAM: &str = r#"
#include "mstx/ms_tools_ext.h"
#include <stdio.h>
int main(void)
{
    mstxMemVirtualRangeDesc_t ranges[2] = {{2, (void *)0x1000, 64}, {2, (void *)0x2000, 128}};
    mstxMemHeapDesc_t heap = {0, 0, ranges};
    mstxMemRegionsRegisterBatch_t batch = {0, 0, 2, ranges, 0};
    mstxMemRegionRef_t references[2];
    mstxMemRegionsUnregisterBatch_t gone = {2, references};
    uint64_t tool = 99;
    references[0].refType = MSTX_MEM_REGION_REF_TYPE_POINTER;
    references[0].pointer = (void *)0x1000;
    references[1].refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
    references[1].pointer = (void *)0x5;
    mstxMarkA("m", 0);
    mstxRangeEnd(mstxRangeStartA("r", 0));
    mstxDomainHandle_t domain = mstxDomainCreateA("ptaCaching");
    mstxDomainMarkA(domain, "dm", 0);
    mstxDomainRangeEnd(domain, mstxDomainRangeStartA(domain, "dr", 0));
    mstxMemHeapHandle_t handle = mstxMemHeapRegister(domain, &heap);
    mstxMemRegionsRegister(domain, &batch);
    mstxMemRegionsUnregister(domain, &gone);
    mstxMemHeapUnregister(domain, handle);
    mstxDomainDestroy(domain);
    mstxGetToolId(&tool);
    printf("tool %d", (int)tool);
    return 0;
}
"#;

const RECEIVED: &str = "tables 5 6 6;mark m;start r;end 7;domain ptaCaching;heap 0x10 2 64;regions 0x10 2;tool 0";

fn compile_tool(directory: &std::path::Path) -> String {
    let source = directory.join("tool.c");
    std::fs::write(&source, TOOL).expect("the source can be written");
    let library = directory.join("libtool.so");
    let status = std::process::Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-I"])
        .arg(standin_testing::home().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .status()
        .expect("gcc");
    assert!(status.success());
    library.to_string_lossy().into_owned()
}

#[test]
fn the_sample_of_the_guide_runs() {
    let (output, entries) = run("sample.cpp", SAMPLE, &["ms_tools_ext"], &[]);
    assert_eq!(success(&output), "0");
    let seen: Vec<_> = entries.iter().map(|entry| (entry.record.kind, entry.text.as_deref())).collect();
    assert_eq!(seen, [(Kind::Mark, Some("MarkA")), (Kind::RangeStart, Some("step start")), (Kind::RangeEnd, None)]);
}

#[test]
fn a_tool_is_found_by_path_and_in_the_global_scope() {
    let directory = workspace();
    let tool = compile_tool(directory.path());
    let library_program = format!("#define MSTX_NO_IMPL\n{PROGRAM}");
    for (name, source) in [("inline.c", PROGRAM), ("library.c", library_program.as_str())] {
        for variable in ["MSTX_INJECTION_PATH", "LD_PRELOAD"] {
            let (output, entries) = run(name, source, &["ms_tools_ext"], &[(variable, &tool)]);
            assert_eq!(success(&output), RECEIVED, "{name} with {variable}");
            let kinds: Vec<_> = entries.iter().map(|entry| entry.record.kind).collect();
            assert_eq!(
                kinds,
                [
                    Kind::Mark,
                    Kind::RangeStart,
                    Kind::RangeEnd,
                    Kind::DomainCreate,
                    Kind::DomainMark,
                    Kind::DomainRangeStart,
                    Kind::DomainRangeEnd,
                    Kind::HeapRegister,
                    Kind::RegionRegister,
                    Kind::RegionRegister,
                    Kind::RegionUnregister,
                    Kind::RegionUnregister,
                    Kind::HeapUnregister,
                    Kind::DomainDestroy
                ]
            );
            assert_eq!(entries[1].record.address, 7, "the id that the tool returned");
            assert_eq!(
                (entries[9].record.device, entries[9].record.address, entries[9].record.size_bytes),
                (2, 0x2000, 128)
            );
            assert_eq!(entries[9].record.flags, 0x10, "the domain that the tool returned");
            assert_eq!((entries[11].record.address, entries[11].record.result), (5, 1));
        }
    }
}

#[test]
fn a_tool_that_refuses_is_never_called() {
    let directory = workspace();
    let tool = compile_tool(directory.path());
    let library_program = format!("#define MSTX_NO_IMPL\n{PROGRAM}");
    for (name, source) in [("inline.c", PROGRAM), ("library.c", library_program.as_str())] {
        let (output, _) = run(name, source, &["ms_tools_ext"], &[("LD_PRELOAD", &tool), ("REFUSE", "1")]);
        assert_eq!(success(&output), "tables 5 6 6;tool 0", "{name}");
    }
}

#[test]
fn a_wrong_path_means_no_tool() {
    let (output, entries) = run("wrong.c", PROGRAM, &["ms_tools_ext"], &[("MSTX_INJECTION_PATH", "/nonexistent.so")]);
    assert_eq!(success(&output), "tool 0");
    assert_eq!(entries.len(), 14);
}
