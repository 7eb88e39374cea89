//! The calls, by what they are about. Each file has the requests and answers of its calls and nothing else.

mod groups;
mod offsets;
mod topics;
mod transactions;
mod world;

pub use groups::Pending;
pub use transactions::PerId;
