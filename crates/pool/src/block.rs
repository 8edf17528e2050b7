//! Memory for spawned units, used again instead of going back to the allocator each time.
//!
//! A unit is made on one thread and disposed of on another, which is the slow case of most
//! allocators. So each thread keeps a few free blocks, and what one has too many of it hands over,
//! [`HANDFUL`] at a time, to a depot from which those who have none help themselves.
//!
//! Blocks are ordinary boxes. The depot keeps no more than [`DEPOT_HANDFULS`]; the rest is freed.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// Room for one unit: a header and a closure of up to five words. One cache line long.
pub(crate) type Block = Box<MaybeUninit<[u128; 4]>>;

/// The size of a block in bytes.
pub(crate) const SIZE: usize = size_of::<[u128; 4]>();
/// How many blocks change hands at once.
const HANDFUL: usize = 64;
/// How many handfuls the depot keeps: 4 MiB.
const DEPOT_HANDFULS: usize = 1024;

static DEPOT: Mutex<Vec<Vec<Block>>> = Mutex::new(Vec::new());

thread_local! {
    static FREE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// A block with arbitrary content.
#[inline]
pub(crate) fn take() -> Block {
    // A thread that is ending has no cache any more.
    let cached = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        free.pop().or_else(|| refill(&mut free))
    });
    cached.ok().flatten().unwrap_or_else(Box::new_uninit)
}

/// Keeps a block for later.
#[inline]
pub(crate) fn give(block: Block) {
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        free.push(block);
        if free.len() >= 2 * HANDFUL {
            hand_over(&mut free);
        }
    });
}

#[cold]
fn refill(free: &mut Vec<Block>) -> Option<Block> {
    let handful = depot().pop()?;
    *free = handful;
    free.pop()
}

#[cold]
fn hand_over(free: &mut Vec<Block>) {
    let handful = free.split_off(HANDFUL);
    let mut depot = depot();
    if depot.len() < DEPOT_HANDFULS {
        depot.push(handful);
    }
}

fn depot() -> std::sync::MutexGuard<'static, Vec<Vec<Block>>> {
    DEPOT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_gives_another_takes() {
        let blocks: Vec<Block> = (0..4 * HANDFUL).map(|_| take()).collect();
        std::thread::spawn(move || blocks.into_iter().for_each(give))
            .join()
            .unwrap();
        assert!(!depot().is_empty());
    }
}
