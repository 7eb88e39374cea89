use std::borrow::Cow;

/// A value of one row of one column, checked to fit the column's type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Null,
    Boolean(bool),
    Int(i32),
    /// `BIGINT`, `TIMESTAMP_MS` and `TIMESTAMP_US`.
    BigInt(i64),
    Float(f32),
    Double(f64),
    /// Scaled to the column's scale.
    Decimal(i128),
    String(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Days since 1970-01-01.
    Date(i32),
    Array(Vec<Cell<'a>>),
    /// As many as the type has fields.
    Struct(Vec<Cell<'a>>),
}
