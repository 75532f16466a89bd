//! Tensors: strided views of memory with a data type.

use half::{bf16, f16};
use std::cmp::Ordering;

/// Data types by the numbers of AscendCL (`aclDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// 32-bit floating point.
    Float32,
    /// 16-bit floating point.
    Float16,
    /// Brain floating point.
    Bfloat16,
    /// 64-bit floating point.
    Float64,
    /// Signed 8-bit integer.
    Int8,
    /// Signed 16-bit integer.
    Int16,
    /// Signed 32-bit integer.
    Int32,
    /// Signed 64-bit integer.
    Int64,
    /// Unsigned 8-bit integer.
    Uint8,
    /// One byte, 0 or 1.
    Bool,
}

impl DataType {
    /// The type with this number, if operators can be computed on it.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Float32,
            1 => Self::Float16,
            2 => Self::Int8,
            3 => Self::Int32,
            4 => Self::Uint8,
            6 => Self::Int16,
            9 => Self::Int64,
            11 => Self::Float64,
            12 => Self::Bool,
            27 => Self::Bfloat16,
            _ => return None,
        })
    }

    /// Size of an element.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::Uint8 => 1,
            Self::Float16 | Self::Bfloat16 | Self::Int16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }

    /// Whether values have a fraction.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float16 | Self::Bfloat16 | Self::Float64)
    }

    /// The type in which elements of this floating-point type are computed: short types only store them.
    #[must_use]
    pub fn computation_type(self) -> Self {
        if self == Self::Float64 { self } else { Self::Float32 }
    }

    /// A number as this floating-point type can hold it. Short types are reached through `f32`, as on the CPU; the
    /// conversions of `half` from `f64` leave out the lower half of the bits.
    #[must_use]
    pub fn rounded(self, value: f64) -> f64 {
        match self {
            Self::Float32 => f64::from(value as f32),
            Self::Float16 => f16::from_f32(value as f32).to_f64(),
            Self::Bfloat16 => bf16::from_f32(value as f32).to_f64(),
            _ => value,
        }
    }
}

/// What operators compute with.
pub trait Value: Copy + Default + PartialOrd {
    /// From a floating-point element.
    fn from_float(value: f64) -> Self;
    /// From an integer or boolean element.
    fn from_integer(value: i64) -> Self;
    /// As a floating-point element.
    fn to_float(self) -> f64;
    /// As an integer element; fractions are cut off.
    fn to_integer(self) -> i64;
    /// Whether it counts as true.
    fn is_true(self) -> bool;
    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// Sum; whole numbers wrap around.
    fn plus(self, other: Self) -> Self;
    /// Product; whole numbers wrap around.
    fn times(self, other: Self) -> Self;

    /// Order with what is not a number above everything.
    fn order(self, other: Self) -> Ordering {
        self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
    }
}

/// Both widths of floating-point numbers do the same.
macro_rules! value_of_float {
    ($float:ty) => {
        impl Value for $float {
            fn from_float(value: f64) -> Self {
                value as $float
            }
            fn from_integer(value: i64) -> Self {
                value as $float
            }
            fn to_float(self) -> f64 {
                f64::from(self)
            }
            fn to_integer(self) -> i64 {
                self as i64
            }
            fn is_true(self) -> bool {
                self != 0.0
            }
            fn is_nan(self) -> bool {
                Self::is_nan(self)
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
    };
}

value_of_float!(f64);
value_of_float!(f32);

impl Value for i64 {
    fn from_float(value: f64) -> Self {
        value as i64
    }
    fn from_integer(value: i64) -> Self {
        value
    }
    fn to_float(self) -> f64 {
        self as f64
    }
    fn to_integer(self) -> i64 {
        self
    }
    fn is_true(self) -> bool {
        self != 0
    }
    fn is_nan(self) -> bool {
        false
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

/// A number given to an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// With a fraction.
    Float(f64),
    /// Whole, or a boolean.
    Integer(i64),
}

impl Scalar {
    /// As a value to compute with.
    #[must_use]
    pub fn value<V: Value>(self) -> V {
        match self {
            Self::Float(value) => V::from_float(value),
            Self::Integer(value) => V::from_integer(value),
        }
    }

    /// As a floating-point number.
    #[must_use]
    pub fn float(self) -> f64 {
        self.value()
    }

    /// As a floating-point number that elements of `tensor` can be compared with.
    #[must_use]
    pub fn float_like(self, tensor: &Tensor) -> f64 {
        tensor.data_type.rounded(self.float())
    }

    /// As a floating-point number to compute with elements of `tensor`.
    #[must_use]
    pub fn float_for(self, tensor: &Tensor) -> f64 {
        tensor.data_type.computation_type().rounded(self.float())
    }

    /// Whether it has a fraction.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float(_))
    }
}

/// A strided view of memory. Copying a tensor copies the view, never the memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    data: *mut u8,
    /// Type of the elements.
    pub data_type: DataType,
    /// Size of each dimension.
    pub shape: Vec<usize>,
    /// Distance of neighbours in each dimension, in elements.
    pub strides: Vec<isize>,
}

// SAFETY: a tensor is moved to the worker that computes with it; the launcher keeps the memory alive until then, and
// orders conflicting accesses by streams and events, as on a card.
unsafe impl Send for Tensor {}

/// Elements.
const FILLED_AT_ONCE: usize = 4096;

impl Tensor {
    /// A view of the memory at `data`, starting `offset` elements behind it.
    ///
    /// # Safety
    /// All elements of the view must be inside memory that stays valid as long as the view is used.
    #[must_use]
    pub unsafe fn new(
        data: *mut u8,
        data_type: DataType,
        shape: Vec<usize>,
        strides: Vec<isize>,
        offset: isize,
    ) -> Self {
        let data = data.wrapping_offset(offset * data_type.size_bytes() as isize);
        Self { data, data_type, shape, strides }
    }

    /// A dense view of the elements of `values`, which must outlive it.
    #[cfg(test)]
    #[must_use]
    pub fn dense(values: &mut [f32], shape: &[usize]) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        let data = values.as_mut_ptr().cast();
        Self { data, data_type: DataType::Float32, shape: shape.to_vec(), strides: dense_strides(shape) }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether elements have a fraction.
    #[must_use]
    pub fn is_float(&self) -> bool {
        self.data_type.is_float()
    }

    /// A dimension as given by a caller, where negative numbers count from the end.
    #[must_use]
    pub fn dimension(&self, dimension: i64) -> usize {
        let rank = self.rank().max(1) as i64;
        (if dimension < 0 { dimension + rank } else { dimension }).clamp(0, rank - 1) as usize
    }

    /// All elements in row-major order.
    #[must_use]
    pub fn read<V: Value>(&self) -> Vec<V> {
        self.read_view(&self.shape, &self.strides)
    }

    /// All elements in row-major order, repeated where needed to fill `shape`.
    #[must_use]
    pub fn read_as<V: Value>(&self, shape: &[usize]) -> Vec<V> {
        if self.shape == shape {
            return self.read();
        }
        self.read_view(shape, &self.broadcast_strides(shape))
    }

    /// Strides with which this tensor fills `shape`.
    #[must_use]
    pub fn broadcast_strides(&self, shape: &[usize]) -> Vec<isize> {
        let missing = shape.len().saturating_sub(self.rank());
        let stride = |index: usize| {
            index.checked_sub(missing).map_or(0, |own| if self.shape[own] == 1 { 0 } else { self.strides[own] })
        };
        (0..shape.len()).map(stride).collect()
    }

    /// The same memory with another shape and other strides, both of which must stay inside it.
    #[must_use]
    pub fn view(&self, shape: Vec<usize>, strides: Vec<isize>) -> Self {
        Self { data: self.data, data_type: self.data_type, shape, strides }
    }

    /// The same memory with dimensions in another order.
    #[must_use]
    pub fn permuted(&self, order: &[usize]) -> Self {
        let shape = order.iter().map(|dimension| self.shape[*dimension]).collect();
        let strides = order.iter().map(|dimension| self.strides[*dimension]).collect();
        self.view(shape, strides)
    }

    /// The same memory with at least one dimension, for operators that take a single element as a list of one.
    #[must_use]
    pub fn with_dimensions(&self) -> Self {
        if self.rank() == 0 { self.view(vec![1], vec![1]) } else { self.clone() }
    }

    /// The part that starts at `start` in one dimension and has `length` elements there.
    #[must_use]
    pub fn narrowed(&self, dimension: usize, start: usize, length: usize) -> Self {
        let mut part = self.clone();
        part.shape[dimension] = length;
        let offset = start as isize * self.strides[dimension] * self.data_type.size_bytes() as isize;
        part.data = self.data.wrapping_offset(offset);
        part
    }

    /// Dimensions as given by a caller, all of them when none is given.
    #[must_use]
    pub fn dimensions(&self, dimensions: &[i64]) -> Vec<usize> {
        if dimensions.is_empty() {
            return (0..self.rank()).collect();
        }
        let mut dimensions: Vec<usize> = dimensions.iter().map(|dimension| self.dimension(*dimension)).collect();
        dimensions.retain(|dimension| *dimension < self.rank());
        dimensions
    }

    fn read_view<V: Value>(&self, shape: &[usize], strides: &[isize]) -> Vec<V> {
        match self.data_type {
            DataType::Float32 => self.gather(shape, strides, |value: f32| V::from_float(f64::from(value))),
            DataType::Float16 => self.gather(shape, strides, |value: f16| V::from_float(value.to_f64())),
            DataType::Bfloat16 => self.gather(shape, strides, |value: bf16| V::from_float(value.to_f64())),
            DataType::Float64 => self.gather(shape, strides, |value: f64| V::from_float(value)),
            DataType::Int8 => self.gather(shape, strides, |value: i8| V::from_integer(i64::from(value))),
            DataType::Int16 => self.gather(shape, strides, |value: i16| V::from_integer(i64::from(value))),
            DataType::Int32 => self.gather(shape, strides, |value: i32| V::from_integer(i64::from(value))),
            DataType::Int64 => self.gather(shape, strides, |value: i64| V::from_integer(value)),
            DataType::Uint8 => self.gather(shape, strides, |value: u8| V::from_integer(i64::from(value))),
            DataType::Bool => self.gather(shape, strides, |value: u8| V::from_integer(i64::from(value != 0))),
        }
    }

    /// Sets all elements, given in row-major order.
    pub fn write<V: Value>(&self, values: &[V]) {
        match self.data_type {
            DataType::Float32 => self.scatter(values, |value| value.to_float() as f32),
            DataType::Float16 => self.scatter(values, |value| f16::from_f32(value.to_float() as f32)),
            DataType::Bfloat16 => self.scatter(values, |value| bf16::from_f32(value.to_float() as f32)),
            DataType::Float64 => self.scatter(values, |value| value.to_float()),
            DataType::Int8 => self.scatter(values, |value| value.to_integer() as i8),
            DataType::Int16 => self.scatter(values, |value| value.to_integer() as i16),
            DataType::Int32 => self.scatter(values, |value| value.to_integer() as i32),
            DataType::Int64 => self.scatter(values, |value| value.to_integer()),
            DataType::Uint8 => self.scatter(values, |value| value.to_integer() as u8),
            DataType::Bool => self.scatter(values, |value| u8::from(value.is_true())),
        }
    }

    /// Sets all elements to one value.
    pub fn fill(&self, value: Scalar) {
        match value {
            Scalar::Float(value) => self.fill_with(value),
            Scalar::Integer(value) => self.fill_with(value),
        }
    }

    /// Part by part, so that nothing as large as the tensor is needed beside it.
    fn fill_with<V: Value>(&self, value: V) {
        let Some((dimension, length)) = self.shape.iter().copied().enumerate().max_by_key(|(_, length)| *length) else {
            return self.write(&[value]);
        };
        let part_length = (FILLED_AT_ONCE / (self.len() / length.max(1)).max(1)).clamp(1, length.max(1));
        for start in (0..length).step_by(part_length) {
            let part = self.narrowed(dimension, start, part_length.min(length - start));
            part.write(&vec![value; part.len()]);
        }
    }

    fn gather<T: Copy, V>(&self, shape: &[usize], strides: &[isize], convert: impl Fn(T) -> V) -> Vec<V> {
        let mut values = Vec::with_capacity(shape.iter().product());
        for_each_row(shape, strides, |start, length, stride| {
            let row = self.data.cast::<T>().wrapping_offset(start);
            for index in 0..length as isize {
                // SAFETY: the element is part of the view, which is valid by the contract of `new`.
                values.push(convert(unsafe { row.wrapping_offset(index * stride).read_unaligned() }));
            }
        });
        values
    }

    fn scatter<T, V: Copy>(&self, values: &[V], convert: impl Fn(V) -> T) {
        assert_eq!(values.len(), self.len(), "an operator made a result of the wrong size for {:?}", self.shape);
        let mut next = values.iter();
        for_each_row(&self.shape, &self.strides, |start, length, stride| {
            let row = self.data.cast::<T>().wrapping_offset(start);
            for (index, value) in next.by_ref().take(length).enumerate() {
                // SAFETY: the element is part of the view, which is valid by the contract of `new`.
                unsafe { row.wrapping_offset(index as isize * stride).write_unaligned(convert(*value)) };
            }
        });
    }
}

/// Strides of a dense row-major tensor.
#[must_use]
pub fn dense_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for index in (1..shape.len()).rev() {
        strides[index - 1] = strides[index] * shape[index].max(1) as isize;
    }
    strides
}

/// Calls `visit(start, length, stride)` for every row of a view: offset of the first element, number of elements and
/// their distance. Rows that lie behind each other are visited as one.
fn for_each_row(shape: &[usize], strides: &[isize], mut visit: impl FnMut(isize, usize, isize)) {
    if shape.contains(&0) {
        return;
    }
    let mut outer: Vec<(usize, isize)> = shape.iter().copied().zip(strides.iter().copied()).collect();
    outer.retain(|(size, _)| *size != 1);
    let Some((mut length, stride)) = outer.pop() else {
        visit(0, 1, 1);
        return;
    };
    while outer.last().is_some_and(|(_, next)| *next == stride * length as isize) {
        length *= outer.pop().map_or(1, |(size, _)| size);
    }
    let mut position = vec![0; outer.len()];
    let mut start = 0;
    loop {
        visit(start, length, stride);
        let mut dimension = outer.len();
        loop {
            if dimension == 0 {
                return;
            }
            dimension -= 1;
            let (size, step) = outer[dimension];
            position[dimension] += 1;
            start += step;
            if position[dimension] < size {
                break;
            }
            start -= step * size as isize;
            position[dimension] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DataType, Scalar, Tensor};

    #[test]
    fn strided_views_read_and_write_the_right_elements() {
        let mut values: Vec<f32> = (0..12).map(|value| value as f32).collect();
        // SAFETY: the view covers the vector above.
        let transposed =
            unsafe { Tensor::new(values.as_mut_ptr().cast(), DataType::Float32, vec![4, 3], vec![1, 4], 0) };
        assert_eq!(transposed.read::<i64>(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        // SAFETY: the view covers every second element of the last row.
        let part = unsafe { Tensor::new(values.as_mut_ptr().cast(), DataType::Float32, vec![2], vec![2], 8) };
        part.write(&[-1i64, -2]);
        assert_eq!(&values[8..], &[-1.0, 9.0, -2.0, 11.0]);
    }

    #[test]
    fn broadcasting_repeats_elements() {
        let mut values = [1.0, 2.0];
        let column = Tensor::dense(&mut values, &[2, 1]);
        assert_eq!(column.read_as::<f64>(&[2, 2, 3]), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        let scalar = Tensor::dense(&mut values[..1], &[]);
        assert_eq!(scalar.read_as::<f64>(&[3]), [1.0; 3]);
        assert_eq!(scalar.len(), 1);
    }

    #[test]
    fn all_types_convert() {
        let mut memory = [0u8; 16];
        for number in [0, 1, 2, 3, 4, 6, 9, 11, 27] {
            let data_type = DataType::from_number(number).expect("a known type");
            // SAFETY: two elements of at most eight bytes.
            let tensor = unsafe { Tensor::new(memory.as_mut_ptr(), data_type, vec![2], vec![1], 0) };
            tensor.write(&[3.75f64, 100.0]);
            let expected = if data_type.is_float() { 3.75 } else { 3.0 };
            assert_eq!(tensor.read::<f64>(), [expected, 100.0], "{data_type:?}");
        }
        // SAFETY: two elements of one byte.
        let boolean = unsafe { Tensor::new(memory.as_mut_ptr(), DataType::Bool, vec![2], vec![1], 0) };
        boolean.write(&[0.5f64, 0.0]);
        assert_eq!(boolean.read::<i64>(), [1, 0]);
        boolean.fill(Scalar::Integer(7));
        assert_eq!(memory[..2], [1, 1]);
    }

    #[test]
    fn tensors_of_all_shapes_are_filled() {
        for shape in
            [vec![], vec![1], vec![9000], vec![3, 5000], vec![5000, 3], vec![70, 2, 90], vec![0], vec![4, 0, 7]]
        {
            let mut values = vec![0.0_f32; shape.iter().product()];
            Tensor::dense(&mut values, &shape).fill(Scalar::Integer(3));
            assert!(values.iter().all(|value| *value == 3.0), "{shape:?}");
        }
    }

    #[test]
    fn empty_tensors_are_harmless() {
        let tensor = Tensor::dense(&mut [], &[0, 3]);
        assert!(tensor.is_empty());
        assert_eq!(tensor.read::<f64>(), []);
        tensor.write::<f64>(&[]);
    }
}
