//! The words of Loxley.
#![no_std]
