//! The functions that calls name by number.
//!
//! A function is kept while somebody may still call it: until whoever defined it has forgotten it and
//! the last call of it is over.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Functions {
    kept: HashMap<u64, Function>,
    next: u64,
}

#[derive(Debug)]
struct Function {
    packed: Arc<[u8]>,
    /// Calls of it that are not over.
    calls: usize,
    is_forgotten: bool,
}

impl Functions {
    pub(crate) fn define(&mut self, packed: Arc<[u8]>) -> u64 {
        self.next += 1;
        let function = Function {
            packed,
            calls: 0,
            is_forgotten: false,
        };
        self.kept.insert(self.next, function);
        self.next
    }

    pub(crate) fn packed(&self, number: u64) -> Arc<[u8]> {
        Arc::clone(&self.kept[&number].packed)
    }

    /// Whether calls may name it.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.kept.contains_key(&number)
    }

    pub(crate) fn call_begins(&mut self, number: u64) {
        self.with(number, |function| function.calls += 1);
    }

    /// Says whether that was the last anybody wanted of it.
    pub(crate) fn call_ends(&mut self, number: u64) -> bool {
        self.with(number, |function| function.calls -= 1)
    }

    /// Whoever defined it will not call it again. Says whether nobody else wants it either.
    pub(crate) fn forget(&mut self, number: u64) -> bool {
        self.with(number, |function| function.is_forgotten = true)
    }

    /// Changes a function, and lets it go if nobody wants it any more: then this is true.
    fn with(&mut self, number: u64, change: impl FnOnce(&mut Function)) -> bool {
        let Some(function) = self.kept.get_mut(&number) else {
            return false;
        };
        change(function);
        let is_over = function.is_forgotten && function.calls == 0;
        if is_over {
            self.kept.remove(&number);
        }
        is_over
    }
}
