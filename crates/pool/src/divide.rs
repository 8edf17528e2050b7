//! What loops divide: slices, ranges, and vectors with what is in them.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::unwind::discard;

/// Something that can be cut into two parts and looped over.
pub trait Divide: Sized + Send {
    /// What the loop body gets.
    type Item;

    /// How many items there are.
    fn len(&self) -> usize;

    /// Are there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` items and the rest. `count` is at most `len`.
    #[must_use]
    fn cut(self, count: usize) -> (Self, Self);

    /// Takes each item in order into a running result.
    fn fold<R>(self, start: R, step: impl FnMut(R, Self::Item) -> R) -> R;
}

impl<'a, T: Sync> Divide for &'a [T] {
    type Item = &'a T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn cut(self, count: usize) -> (Self, Self) {
        self.split_at(count)
    }

    fn fold<R>(self, start: R, step: impl FnMut(R, &'a T) -> R) -> R {
        self.iter().fold(start, step)
    }
}

impl<'a, T: Send> Divide for &'a mut [T] {
    type Item = &'a mut T;

    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn cut(self, count: usize) -> (Self, Self) {
        self.split_at_mut(count)
    }

    fn fold<R>(self, start: R, step: impl FnMut(R, &'a mut T) -> R) -> R {
        self.iter_mut().fold(start, step)
    }
}

macro_rules! divide_range {
    ($($number:ty),*) => {$(
        impl Divide for Range<$number> {
            type Item = $number;

            fn len(&self) -> usize {
                if self.start < self.end {
                    usize::try_from(self.end.abs_diff(self.start)).unwrap_or(usize::MAX)
                } else {
                    0
                }
            }

            fn cut(self, count: usize) -> (Self, Self) {
                // `count` is at most the length, so it fits and the sum does not overflow; the
                // wrap is for signed ranges longer than the largest positive number.
                let middle = self.start.wrapping_add(count as $number);
                (self.start..middle, middle..self.end)
            }

            fn fold<R>(self, start: R, step: impl FnMut(R, $number) -> R) -> R {
                Iterator::fold(self, start, step)
            }
        }
    )*};
}

divide_range!(usize, u64, u32, u16, u8, isize, i64, i32, i16, i8);

macro_rules! divide_inclusive {
    ($($number:ty),*) => {$(
        impl Divide for RangeInclusive<$number> {
            type Item = $number;

            fn len(&self) -> usize {
                if self.is_empty() {
                    return 0;
                }
                // All numbers of a type as large as `usize` are one more than can be said: then the last is left
                // when so many have been cut off.
                let below = usize::try_from(self.end().abs_diff(*self.start()));
                below.unwrap_or(usize::MAX).saturating_add(1)
            }

            fn cut(self, count: usize) -> (Self, Self) {
                let none = RangeInclusive::new(1, 0);
                if count == 0 {
                    return (none, self);
                }
                // `count` is at least one and at most the length; the wrap is as for ranges without their end.
                let last = self.start().wrapping_add((count - 1) as $number);
                let rest = if last == *self.end() { none } else { last + 1..=*self.end() };
                (*self.start()..=last, rest)
            }

            fn fold<R>(self, start: R, mut step: impl FnMut(R, $number) -> R) -> R {
                if self.is_empty() {
                    return start;
                }
                // Without its end it is a simpler loop.
                let before = Iterator::fold(*self.start()..*self.end(), start, &mut step);
                step(before, *self.end())
            }
        }
    )*};
}

divide_inclusive!(usize, u64, u32, u16, u8, isize, i64, i32, i16, i8);

/// Something that loops take: slices, ranges, vectors and arrays with what is in them, and what can be seen as one
/// of these.
///
/// ```
/// # let pool = loxley_pool::Pool::new()?;
/// let mut numbers = vec![1, 2, 3];
/// pool.par_for(&mut numbers, |n| *n *= 2);
/// assert_eq!(pool.par_map(&numbers, |n| n + 1), [3, 5, 7]);
/// assert_eq!(pool.map_reduce([1, 2, 3].as_slice(), || 0, |n| *n, |a, b| a + b), 6);
/// assert_eq!(pool.map_reduce(1..=10, || 0, |n| n, |a, b| a + b), 55);
/// assert_eq!(pool.par_map(vec!["a".to_owned(), "b".to_owned()], |s| s + "!"), ["a!", "b!"]);
/// # Ok::<(), loxley_pool::BuildError>(())
/// ```
pub trait IntoDivide {
    /// What it is seen as.
    type Divide: Divide;

    /// Sees it as that.
    fn into_divide(self) -> Self::Divide;
}

impl<D: Divide> IntoDivide for D {
    type Divide = D;

    fn into_divide(self) -> D {
        self
    }
}

macro_rules! divide_as_slice {
    ($([$($generic:tt)*] $shared:ty, $item:ty;)*) => {$(
        impl<'a, T: Sync, $($generic)*> IntoDivide for &'a $shared {
            type Divide = &'a [$item];

            fn into_divide(self) -> &'a [$item] {
                self
            }
        }

        impl<'a, T: Send, $($generic)*> IntoDivide for &'a mut $shared {
            type Divide = &'a mut [$item];

            fn into_divide(self) -> &'a mut [$item] {
                self
            }
        }
    )*};
}

divide_as_slice! {
    [] Vec<T>, T;
    [] Box<[T]>, T;
    [const N: usize] [T; N], T;
}

impl<T: Send> IntoDivide for Vec<T> {
    type Divide = Owned<T>;

    fn into_divide(self) -> Owned<T> {
        Owned::new(self)
    }
}

impl<T: Send> IntoDivide for Box<[T]> {
    type Divide = Owned<T>;

    fn into_divide(self) -> Owned<T> {
        Owned::new(self.into_vec())
    }
}

impl<T: Send, const N: usize> IntoDivide for [T; N] {
    type Divide = Owned<T>;

    fn into_divide(self) -> Owned<T> {
        Owned::new(self.into())
    }
}

/// A part of the items of a vector, which it owns: the body of a loop gets each of them by value.
#[derive(Debug)]
pub struct Owned<T> {
    /// Where they are, shared with the other parts and freed with the last of them.
    room: Arc<Room<T>>,
    /// Which of them are ours.
    items: Range<usize>,
}

/// The memory of a vector whose items belong to others: as a vector it has none.
#[derive(Debug)]
struct Room<T> {
    first: *mut T,
    _memory: Vec<T>,
}

// SAFETY: `first` is followed by the one part that owns the item there.
unsafe impl<T: Send> Send for Room<T> {}
// SAFETY: as above; nothing else in here is used before the end.
unsafe impl<T: Send> Sync for Room<T> {}

impl<T> Owned<T> {
    fn new(mut memory: Vec<T>) -> Self {
        let items = 0..memory.len();
        // SAFETY: zero is within the capacity. The items are ours from here on.
        unsafe { memory.set_len(0) };
        let room = Room {
            first: memory.as_mut_ptr(),
            _memory: memory,
        };
        Self {
            room: Arc::new(room),
            items,
        }
    }

    /// The first of its items, which is the caller's now.
    #[inline]
    fn take_first(&mut self) -> Option<T> {
        let index = self.items.next()?;
        // SAFETY: it was one of ours, so it is within the memory.
        let item = unsafe { self.room.first.add(index) };
        // SAFETY: it is there, and no longer ours, so it is read once.
        Some(unsafe { item.read() })
    }
}

impl<T: Send> Divide for Owned<T> {
    type Item = T;

    fn len(&self) -> usize {
        ExactSizeIterator::len(&self.items)
    }

    fn cut(mut self, count: usize) -> (Self, Self) {
        let (near, far) = self.items.clone().cut(count);
        // Ours no longer: each half has its own.
        self.items = far;
        let near = Self {
            room: Arc::clone(&self.room),
            items: near,
        };
        (near, self)
    }

    #[inline]
    fn fold<R>(mut self, start: R, mut step: impl FnMut(R, T) -> R) -> R {
        let mut result = start;
        while let Some(item) = self.take_first() {
            result = step(result, item);
        }
        result
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // Left over when an item before them panicked; then none of these may.
        while let Some(item) = self.take_first() {
            discard(item);
        }
    }
}
