//! The one table of functions of driver and runtime that are hooked.
//!
//! From it the recorder makes its exports, the entries behind them, the typed real functions and its answers to `dlsym`;
//! the thin library makes its jumps. A new hook is one row here and its body in the recorder.

/// Passes all rows to a macro. A row is
///
/// ```text
/// name [its other names] in "library", exported or optional, owned or plain = module::body(arguments);
/// ```
///
/// * `exported`: under its own name, for every program. `optional`: not every version of the library has it, so that its
///   presence would tell callers what the library can do; it is hooked by redirecting imports.
/// * `owned`: a library of the user may stand before the one that owns the name, and callers that ask for the owner's
///   get a hook of their own.
/// * The body lives in the recorder, takes the real function first, and returns what that returned.
#[macro_export]
macro_rules! for_each_hook {
    ($make:path) => {
        $make! {
            halMemAlloc ["halMemAllocInner"] in "libascend_hal.so", exported, owned
                = hal::allocate(address: *mut *mut c_void, size_bytes: u64, flag: u64);
            halMemFree ["halMemFreeInner"] in "libascend_hal.so", exported, owned
                = hal::free(address: *mut c_void);
            halMemCreate ["halMemCreateInner"] in "libascend_hal.so", exported, owned
                = hal::create(handle: *mut *mut c_void, size_bytes: usize, request: *const MemoryRequest, flag: u64);
            halMemRelease ["halMemReleaseInner"] in "libascend_hal.so", exported, owned
                = hal::release(handle: *mut c_void);
            aclInit [] in "libascendcl.so", exported, plain
                = acl::init(configuration: *const c_char);
            aclFinalize [] in "libascendcl.so", exported, plain
                = acl::finalize();
            aclrtSetDevice [] in "libascendcl.so", exported, plain
                = acl::set_device(device_id: i32);
            aclrtHostUnregister [] in "libascendcl.so", exported, plain
                = acl::host_unregister(address: *mut c_void);
            aclrtHostRegisterV2 [] in "libascendcl.so", optional, plain
                = acl::host_register_v2(address: *mut c_void, size_bytes: u64, flag: u32);
            HcclCommInitRootInfo [] in "libhccl.so", optional, plain
                = hccl::join(ranks: u32, root: *const c_void, rank: u32, communicator: *mut *mut c_void);
            HcclCommInitRootInfoConfig [] in "libhccl.so", optional, plain
                = hccl::join_configured(
                    ranks: u32, root: *const c_void, rank: u32, configuration: *const c_void,
                    communicator: *mut *mut c_void
                );
        }
    };
}

/// Passes the hooks of ATB to a macro: those whose names are the same with both ABIs of the C++ library, or those of one
/// ABI. A row is
///
/// ```text
/// mangled name = body, position;
/// ```
///
/// The body gets the address of the caller as one more argument at this position: libraries of both ABIs may be in one
/// process, and a call belongs to the one that makes it.
#[macro_export]
macro_rules! for_each_atb_hook {
    ($make:path, both) => {
        $make! {
            _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE = execute, third;
            _ZNK3atb6Runner12IsSaveTensorEv = is_save_tensor, second;
            _ZN3atb5Probe16IsSaveTensorDescEv = is_save_tensor_desc, first;
            _ZN3atb5Probe18IsSaveTensorBeforeEv = is_save_tensor_before, first;
            _ZN3atb5Probe17IsSaveTensorAfterEv = is_save_tensor_after, first;
            _ZN3atb5Probe21IsExecuteCountInRangeEm = is_execute_count_in_range, second;
        }
    };
    ($make:path, abi_0) => {
        $make! {
            _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs = is_tensor_need_save_abi_0, third;
            _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs = save_launch_param_abi_0, fourth;
        }
    };
    ($make:path, abi_1) => {
        $make! {
            _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
                = is_tensor_need_save_abi_1, third;
            _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
                = save_launch_param_abi_1, fourth;
        }
    };
}
