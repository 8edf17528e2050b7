//! Pure load-balancing algorithms.
#![no_std]
