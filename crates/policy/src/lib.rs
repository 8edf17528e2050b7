//! The deciding core.
#![no_std]
