//! The raw protocol client.
