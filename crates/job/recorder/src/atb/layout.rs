//! Where things are in objects of libatb. Nothing is believed: a list that is longer than ATB allows, or a tensor with
//! more dimensions, means that the object is another one than we think, and none of it is used.
//!
//! The context of a pack is not read: its place has changed between versions.

use std::ffi::c_void;

/// Most elements of a list, of a tensor's dimensions, and of a list of kernels.
const MOST_TENSORS: usize = 256;
const TENSORS_INSIDE: usize = 65;
const MOST_DIMENSIONS: usize = 8;
const MOST_KERNEL_TENSORS: usize = 49;
/// Memory that no card has.
const MOST_BYTES: u64 = 1 << 48;

/// `atb::Tensor`.
#[repr(C)]
struct RawTensor {
    element_type: i32,
    format: i32,
    dimensions: [i64; MOST_DIMENSIONS],
    dimension_count: u64,
    device_address: u64,
    host_address: u64,
    size_bytes: u64,
}

/// `atb::SVector<atb::Tensor>`.
#[repr(C)]
struct RawList {
    capacity: usize,
    count: usize,
    inside: [RawTensor; TENSORS_INSIDE],
    elsewhere: *const RawTensor,
}

/// `atb::SVector<bool>`.
#[repr(C)]
struct RawFlags {
    _capacity: usize,
    _count: usize,
    _inside: [bool; TENSORS_INSIDE],
    _elsewhere: *const bool,
}

/// `atb::RunnerVariantPack`, as far as all versions agree.
#[repr(C)]
struct RawPack {
    inputs: RawList,
    outputs: RawList,
    _can_free: RawFlags,
    _needs_allocation: RawFlags,
    _host_tiling: usize,
    _tiling: usize,
    _tiling_bytes: u64,
    workspace: u64,
    workspace_bytes: u64,
    _intermediate: u64,
    intermediate_bytes: u64,
}

/// `Mki::SVector<int64_t>`.
#[repr(C)]
struct RawDimensions {
    values: [i64; MOST_KERNEL_TENSORS],
    count: usize,
}

/// `Mki::Tensor`.
#[repr(C)]
struct RawKernelTensor {
    element_type: i32,
    format: i32,
    dimensions: RawDimensions,
    _strides: [usize; 3],
    _offset: i64,
    device_address: u64,
    size_bytes: u64,
    _host_address: u64,
}

/// `Mki::SVector<Mki::Tensor>`.
#[repr(C)]
struct RawKernelList {
    tensors: [RawKernelTensor; MOST_KERNEL_TENSORS],
    count: usize,
}

/// A tensor, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// First byte on the device; zero if it is not there.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Code of the type of its elements.
    pub element_type: i32,
    /// Code of its arrangement.
    pub format: i32,
    dimensions: &'a [i64],
}

impl Tensor<'_> {
    /// Its shape as text: `[2,5,]`.
    pub fn shape(&self) -> Shape {
        Shape::of(self.dimensions)
    }
}

/// A shape as text, without any memory of its own.
pub struct Shape {
    text: [u8; Shape::MOST_BYTES],
    length: usize,
}

impl Shape {
    /// Twenty digits with a sign and a comma for each dimension, and two brackets.
    const MOST_BYTES: usize = MOST_DIMENSIONS * 22 + 2;

    fn of(dimensions: &[i64]) -> Self {
        let mut shape = Self { text: [0; Self::MOST_BYTES], length: 0 };
        shape.push(b'[');
        for dimension in dimensions.iter().take(MOST_DIMENSIONS) {
            shape.push_number(*dimension);
            shape.push(b',');
        }
        shape.push(b']');
        shape
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn push_number(&mut self, number: i64) {
        if number < 0 {
            self.push(b'-');
        }
        let (mut digits, mut count, mut rest) = ([0_u8; 20], 0, number.unsigned_abs());
        loop {
            digits[count] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        digits[..count].iter().rev().for_each(|digit| self.push(*digit));
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

impl RawTensor {
    fn tensor(&self) -> Option<Tensor<'_>> {
        let dimensions = self.dimensions.get(..usize::try_from(self.dimension_count).ok()?)?;
        (self.size_bytes < MOST_BYTES).then_some(Tensor {
            address: self.device_address,
            size_bytes: self.size_bytes,
            element_type: self.element_type,
            format: self.format,
            dimensions,
        })
    }
}

impl RawList {
    /// Its elements, if it is one.
    fn elements(&self) -> Option<&[RawTensor]> {
        if self.count > MOST_TENSORS || self.capacity > MOST_TENSORS {
            return None;
        }
        let elements = if self.elsewhere.is_null() {
            self.inside.get(..self.count)?
        } else if self.elsewhere.is_aligned() && self.capacity >= self.count {
            // SAFETY: a list with elements elsewhere has as many there.
            unsafe { std::slice::from_raw_parts(self.elsewhere, self.count) }
        } else {
            return None;
        };
        elements.iter().all(|element| element.tensor().is_some()).then_some(elements)
    }
}

/// What an operator works on.
pub struct Pack<'a> {
    inputs: &'a [RawTensor],
    outputs: &'a [RawTensor],
    workspace: (u64, u64),
}

impl Pack<'_> {
    /// Reads a pack; nothing if it is not what we know.
    ///
    /// # Safety
    /// A pack of a libatb that outlives the result.
    pub unsafe fn read<'a>(pack: *const c_void) -> Option<Pack<'a>> {
        // SAFETY: promised by the caller; the packs of all versions are longer than this.
        let pack = unsafe { pack.cast::<RawPack>().as_ref() }?;
        let (inputs, outputs) = (pack.inputs.elements()?, pack.outputs.elements()?);
        let bytes = pack.workspace_bytes.checked_add(pack.intermediate_bytes)?;
        (bytes < MOST_BYTES).then_some(Pack { inputs, outputs, workspace: (pack.workspace, bytes) })
    }

    /// What goes in.
    pub fn inputs(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.inputs.iter().filter_map(RawTensor::tensor)
    }

    /// What comes out.
    pub fn outputs(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.outputs.iter().filter_map(RawTensor::tensor)
    }

    /// Address and size of the memory that the operator was given for itself.
    pub fn workspace(&self) -> (u64, u64) {
        self.workspace
    }
}

impl RawKernelTensor {
    fn tensor(&self) -> Option<Tensor<'_>> {
        let dimensions = self.dimensions.values.get(..self.dimensions.count)?;
        (self.size_bytes < MOST_BYTES).then_some(Tensor {
            address: self.device_address,
            size_bytes: self.size_bytes,
            element_type: self.element_type,
            format: self.format,
            dimensions,
        })
    }
}

/// Layouts of kernels' parameters.
pub struct Layout;

impl Layout {
    /// Tensors of a list; nothing if it is not what we know.
    ///
    /// # Safety
    /// A list of tensors of a kernel that outlives the result.
    pub unsafe fn kernel_tensors<'a>(list: *const c_void) -> Option<impl Iterator<Item = Tensor<'a>>> {
        // SAFETY: promised by the caller.
        let list = unsafe { list.cast::<RawKernelList>().as_ref() }?;
        let tensors = list.tensors.get(..list.count)?;
        let are_tensors = tensors.iter().all(|tensor| tensor.tensor().is_some());
        are_tensors.then(|| tensors.iter().filter_map(RawKernelTensor::tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn objects_have_the_layout_of_atb() {
        assert_eq!((size_of::<RawTensor>(), size_of::<RawList>(), size_of::<RawFlags>()), (104, 6784, 96));
        assert_eq!((offset_of!(RawTensor, device_address), offset_of!(RawTensor, size_bytes)), (80, 96));
        assert_eq!((offset_of!(RawList, inside), offset_of!(RawList, elsewhere)), (16, 6776));
        assert_eq!((offset_of!(RawPack, outputs), offset_of!(RawPack, workspace)), (6784, 13784));
        assert_eq!((offset_of!(RawPack, workspace_bytes), offset_of!(RawPack, intermediate_bytes)), (13792, 13808));
        assert_eq!((size_of::<RawKernelTensor>(), size_of::<RawKernelList>()), (464, 22744));
        assert_eq!(offset_of!(RawKernelTensor, device_address), 440);
    }

    #[test]
    fn shapes_are_written_as_atb_writes_them() {
        assert_eq!(Shape::of(&[1, 5]).bytes(), b"[1,5,]");
        assert_eq!(Shape::of(&[]).bytes(), b"[]");
        assert_eq!(Shape::of(&[0, -1, i64::MIN]).bytes(), b"[0,-1,-9223372036854775808,]");
        assert_eq!(Shape::of(&[i64::MIN; 8]).bytes().len(), 8 * 21 + 2);
    }

    #[test]
    fn what_is_no_pack_is_not_read() {
        let mut words = vec![0_u64; 13848 / 8];
        // SAFETY: as large as a pack.
        assert!(unsafe { Pack::read(words.as_ptr().cast()) }.is_some());
        for place in [0, 1, 6784 / 8 + 1, 13792 / 8, 13808 / 8] {
            words[place] = u64::MAX;
            // SAFETY: as above.
            assert!(unsafe { Pack::read(words.as_ptr().cast()) }.is_none(), "{place}");
            words[place] = 0;
        }
        // A tensor with nine dimensions.
        (words[1], words[2 + 9]) = (1, 9);
        // SAFETY: as above.
        assert!(unsafe { Pack::read(words.as_ptr().cast()) }.is_none());
        // SAFETY: nothing.
        assert!(unsafe { Pack::read(std::ptr::null()) }.is_none());
    }
}
