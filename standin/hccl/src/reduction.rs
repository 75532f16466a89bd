//! Sums, products, largest and smallest, of every type that HCCL knows.

use half::{bf16, f16};

/// Types of elements, by HCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
    I8,
    I16,
    I32,
    F16,
    F32,
    I64,
    U64,
    U8,
    U16,
    U32,
    F64,
    Bf16,
}

impl ElementType {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        const ALL: [ElementType; 12] = [
            ElementType::I8,
            ElementType::I16,
            ElementType::I32,
            ElementType::F16,
            ElementType::F32,
            ElementType::I64,
            ElementType::U64,
            ElementType::U8,
            ElementType::U16,
            ElementType::U32,
            ElementType::F64,
            ElementType::Bf16,
        ];
        ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// What is done with the elements of two ranks, by HCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Sum,
    Product,
    Largest,
    Smallest,
}

impl Operation {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        [Self::Sum, Self::Product, Self::Largest, Self::Smallest].get(usize::try_from(number).ok()?).copied()
    }
}

/// An element that can be combined with another.
trait Element: Copy {
    fn combined(self, other: Self, operation: Operation) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Element for $type {
            fn combined(self, other: Self, operation: Operation) -> Self {
                match operation {
                    Operation::Sum => self.wrapping_add(other),
                    Operation::Product => self.wrapping_mul(other),
                    Operation::Largest => self.max(other),
                    Operation::Smallest => self.min(other),
                }
            }
        }
    )* };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl Element for $type {
            fn combined(self, other: Self, operation: Operation) -> Self {
                match operation {
                    Operation::Sum => self + other,
                    Operation::Product => self * other,
                    Operation::Largest => self.max(other),
                    Operation::Smallest => self.min(other),
                }
            }
        }
    )* };
}
floats!(f32, f64, f16, bf16);

/// Combines every element of `total` with that of `other`. Both are whole elements; addresses need not be aligned.
pub(crate) fn combine(total: &mut [u8], other: &[u8], element_type: ElementType, operation: Operation) {
    match element_type {
        ElementType::I8 => combine_as::<i8>(total, other, operation),
        ElementType::I16 => combine_as::<i16>(total, other, operation),
        ElementType::I32 => combine_as::<i32>(total, other, operation),
        ElementType::F16 => combine_as::<f16>(total, other, operation),
        ElementType::F32 => combine_as::<f32>(total, other, operation),
        ElementType::I64 => combine_as::<i64>(total, other, operation),
        ElementType::U64 => combine_as::<u64>(total, other, operation),
        ElementType::U8 => combine_as::<u8>(total, other, operation),
        ElementType::U16 => combine_as::<u16>(total, other, operation),
        ElementType::U32 => combine_as::<u32>(total, other, operation),
        ElementType::F64 => combine_as::<f64>(total, other, operation),
        ElementType::Bf16 => combine_as::<bf16>(total, other, operation),
    }
}

fn combine_as<E: Element>(total: &mut [u8], other: &[u8], operation: Operation) {
    let size = size_of::<E>();
    for (total, other) in total.chunks_exact_mut(size).zip(other.chunks_exact(size)) {
        // SAFETY: both are as long as an element, of which every bit pattern is valid; alignment is not assumed.
        unsafe {
            let combined = total.as_ptr().cast::<E>().read_unaligned();
            let combined = combined.combined(other.as_ptr().cast::<E>().read_unaligned(), operation);
            total.as_mut_ptr().cast::<E>().write_unaligned(combined);
        }
    }
}
