//! Names of the driver's modules, as they appear in owners (`CANN@HCCL`).

/// The CANN component that asked the driver for memory, by its module id.
pub fn driver_module_name(module_id: u8) -> &'static str {
    NAMES.get(usize::from(module_id)).copied().unwrap_or("UNKNOWN")
}

/// Index is the module id. The last name is spelled the way the driver spells it.
#[rustfmt::skip]
const NAMES: [&str; 76] = [
    "SLOG", "IDEDD", "IDEDH", "HCCL", "FMK", "HIAIENGINE", "DVPP", "RUNTIME",
    "CCE", "HDC", "DRV", "MDCFUSION", "MDCLOCATION", "MDCPERCEPTION", "MDCFSM", "MDCCOMMON",
    "MDCMONITOR", "MDCBSWP", "MDCDEFAULT", "MDCSC", "MDCPNC", "MLL", "DEVMM", "KERNEL",
    "LIBMEDIA", "CCECPU", "ASCENDDK", "ROS", "HCCP", "ROCE", "TEFUSION", "PROFILING",
    "DP", "APP", "TS", "TSDUMP", "AICPU", "LP", "TDT", "FE",
    "MD", "MB", "ME", "IMU", "IMP", "GE", "MDCFUSA", "CAMERA",
    "ASCENDCL", "TEEOS", "ISP", "SIS", "HSM", "DSS", "PROCMGR", "BBOX",
    "AIVECTOR", "TBE", "FV", "MDCMAP", "TUNE", "HSS", "FFTS", "OP",
    "UDF", "HICAID", "TSYNC", "AUDIO", "TPRT", "ASCENDCKERNEL", "ASYS", "ATRACE",
    "RTC", "SYSMONITOR", "AML", "INVLID_MOUDLE_ID",
];

#[cfg(test)]
mod tests {
    use super::driver_module_name;

    #[test]
    fn known_modules_have_their_documented_numbers() {
        let expected = [
            (0, "SLOG"),
            (3, "HCCL"),
            (7, "RUNTIME"),
            (33, "APP"),
            (45, "GE"),
            (48, "ASCENDCL"),
            (63, "OP"),
            (74, "AML"),
        ];
        for (module_id, name) in expected {
            assert_eq!(driver_module_name(module_id), name);
        }
        assert_eq!(driver_module_name(76), "UNKNOWN");
    }
}
