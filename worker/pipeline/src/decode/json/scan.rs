//! The fast way through a record. Most are one flat object of plain texts and whole numbers with its fields in the order of the
//! columns, and reading those in general costs twice the time.
//!
//! It gives what the thorough way gives, or nothing: whatever is unusual, and all that is wrong, is left to that.

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde::de::Visitor;
use serde::de::value::Error as Refused;
use serde_json::value::RawValue;

use super::value::{ValueSeed, decimal};
use super::{Path, find};
use crate::decode::cell::Cell;
use crate::types::{ColumnType, StructField};

/// Digits that fit in any case.
const MAX_DIGITS: usize = 18;

/// Reads an object, and sets the cell of each field that it has. `false`: it is to be read in the thorough way, whatever was set.
pub(super) fn object<'a>(bytes: &'a [u8], fields: &[StructField], set: impl FnMut(usize, Cell<'a>)) -> bool {
    Scanner { rest: bytes }.object(fields, set).is_some()
}

/// Reads from the front of what is left.
struct Scanner<'a> {
    rest: &'a [u8],
}

/// A value as it is written.
enum Token<'a> {
    Null,
    Bool(bool),
    Positive(u64),
    Negative(i64),
    /// Between the quotes.
    Text(&'a [u8]),
    /// Everything else, still to be read.
    Other(&'a str),
}

impl<'a> Scanner<'a> {
    fn object(&mut self, fields: &[StructField], mut set: impl FnMut(usize, Cell<'a>)) -> Option<()> {
        self.space();
        self.expect(b"{")?;
        self.space();
        if self.expect(b"}").is_some() {
            return self.end();
        }
        let mut next = 0;
        loop {
            let index = self.name(fields, next)?;
            self.space();
            self.expect(b":")?;
            self.space();
            match index.and_then(|index| Some((index, fields.get(index)?))) {
                Some((index, field)) => {
                    set(index, self.value(&field.column_type)?);
                    next = index + 1;
                }
                None => {
                    self.token()?;
                }
            }
            self.space();
            if self.expect(b",").is_none() {
                self.expect(b"}")?;
                return self.end();
            }
            self.space();
        }
    }

    fn end(&mut self) -> Option<()> {
        self.space();
        self.rest.is_empty().then_some(())
    }

    fn space(&mut self) {
        while let Some((b' ' | b'\n' | b'\t' | b'\r', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// The field of a name.
    fn name(&mut self, fields: &[StructField], next: usize) -> Option<Option<usize>> {
        self.expect(b"\"")?;
        let name = std::str::from_utf8(self.plain_text()?).ok()?;
        match fields.get(next) {
            Some(field) if field.name == name => Some(Some(next)),
            _ => Some(find(fields, name, next)),
        }
    }

    /// Up to the closing quote, when all of it stands for itself.
    fn plain_text(&mut self) -> Option<&'a [u8]> {
        let (text, rest) = self.rest.split_at_checked(plain(self.rest))?;
        self.rest = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    fn value(&mut self, column_type: &ColumnType) -> Option<Cell<'a>> {
        // Never by way of a binary number.
        if let ColumnType::Decimal { precision, scale } = *column_type {
            return decimal(self.raw()?, precision, scale).ok();
        }
        let path = Path::default();
        let seed = ValueSeed { column_type, path: &path };
        match self.token()? {
            Token::Null => seed.visit_unit::<Refused>().ok(),
            Token::Bool(value) => seed.visit_bool::<Refused>(value).ok(),
            Token::Positive(value) => seed.visit_u64::<Refused>(value).ok(),
            Token::Negative(value) => seed.visit_i64::<Refused>(value).ok(),
            Token::Text(text) => seed.visit_borrowed_str::<Refused>(std::str::from_utf8(text).ok()?).ok(),
            Token::Other(raw) => seed.deserialize(&mut serde_json::Deserializer::from_str(raw)).ok(),
        }
    }

    fn token(&mut self) -> Option<Token<'a>> {
        let (first, rest) = self.rest.split_first()?;
        let before = self.rest;
        match first {
            b'"' => {
                self.rest = rest;
                if let Some(text) = self.plain_text() {
                    return Some(Token::Text(text));
                }
            }
            b'-' => {
                if let Some(value @ 1..) = self.whole(rest) {
                    return Some(Token::Negative(-value));
                }
            }
            b'0'..=b'9' => {
                if let Some(value) = self.whole(before) {
                    return Some(Token::Positive(value.unsigned_abs()));
                }
            }
            b'n' => return self.expect(b"null").map(|()| Token::Null),
            b't' => return self.expect(b"true").map(|()| Token::Bool(true)),
            b'f' => return self.expect(b"false").map(|()| Token::Bool(false)),
            _ => {}
        }
        self.rest = before;
        self.raw().map(Token::Other)
    }

    /// A whole number that begins with these digits.
    fn whole(&mut self, digits: &'a [u8]) -> Option<i64> {
        let mut value = 0_i64;
        let mut len = 0;
        for digit in digits.iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit <= 9) {
            len += 1;
            if len > MAX_DIGITS {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        let has_leading_zero = len > 1 && digits.first() == Some(&b'0');
        let rest = digits.get(len..)?;
        if len == 0 || has_leading_zero || matches!(rest.first(), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.rest = rest;
        Some(value)
    }

    /// Any value, as it is written.
    fn raw(&mut self) -> Option<&'a str> {
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(self.rest)).ok()?.get();
        self.rest = self.rest.get(raw.len()..)?;
        Some(raw)
    }
}

/// How many bytes stand for themselves: up to a quote, a backslash or a control character.
fn plain(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let special = special(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
    bytes.len() - tail.len() + tail.iter().position(is_special).unwrap_or(tail.len())
}

/// The high bit of the first byte of eight that does not stand for itself. Bits above it mean nothing.
const fn special(word: u64) -> u64 {
    const fn each(byte: u8) -> u64 {
        0x0101_0101_0101_0101 * byte as u64
    }
    // A byte below `limit` borrows from its high bit, unless it had that bit before.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(each(limit)) & !word & each(0x80)
    }
    below(word ^ each(b'"'), 1) | below(word ^ each(b'\\'), 1) | below(word, 0x20)
}

#[cfg(test)]
mod tests;
