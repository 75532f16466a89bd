//! From the device ids frameworks use to physical ones (`ASCEND_RT_VISIBLE_DEVICES`).

use crate::Device;

/// Maps logical NPU ids. Without the variable both are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMap {
    physical: Vec<u16>,
}

impl DeviceMap {
    /// Reads the text of the variable. The list ends at the first entry that is no device id, as it
    /// does for the runtime.
    pub fn parse(text: &[u8]) -> Self {
        let entry = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<u16>().ok();
        let physical = text
            .split(|&byte| byte == b',')
            .map(entry)
            .map_while(|id| id.filter(|&id| id <= Device::LARGEST_NPU))
            .collect();
        Self { physical }
    }

    /// The physical device. Ids outside the list are left alone: a wrong guess would hide them.
    #[inline]
    pub fn physical(&self, device: Device) -> Device {
        match device {
            Device::Npu(id) => self.physical.get(usize::from(id)).copied().map_or(device, Device::Npu),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logical_ids_become_physical() {
        let map = DeviceMap::parse(b"4, 7,2");
        assert_eq!(map.physical(Device::Npu(0)), Device::Npu(4));
        assert_eq!(map.physical(Device::Npu(2)), Device::Npu(2));
        assert_eq!(map.physical(Device::Npu(3)), Device::Npu(3));
        assert_eq!(map.physical(Device::Host), Device::Host);
        assert_eq!(map.physical(Device::Unknown), Device::Unknown);
    }

    #[test]
    fn nonsense_ends_the_list() {
        assert_eq!(DeviceMap::parse(b"3,x,5"), DeviceMap { physical: vec![3] });
        assert_eq!(DeviceMap::parse(b""), DeviceMap::default());
        assert_eq!(DeviceMap::parse(b"60000"), DeviceMap::default());
    }
}
