//! The fast way through a record. Most are one flat object of plain texts and whole numbers with its fields in the order of the
//! columns, and reading those in general costs twice the time.
//!
//! It gives what the thorough way gives, or nothing: whatever is unusual, and all that is wrong, is left to that.

use std::borrow::Cow;

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

/// So many names of an object are remembered. It is up to whoever writes the records how many there are.
const REMEMBERED: usize = 64;

/// Names as they were written in the objects before, quotes, colon and spaces included, each with its field; by their place in the object.
/// Records of a topic mostly have the same names in the same order, and comparing is faster than reading.
#[derive(Debug, Default)]
pub(in crate::decode) struct Names<'a>(Vec<(&'a str, Option<usize>)>);

impl<'a> Names<'a> {
    fn remember(&mut self, place: usize, written: &'a str, field: Option<usize>) {
        if let Some(name) = self.0.get_mut(place) {
            *name = (written, field);
        } else if place == self.0.len() && place < REMEMBERED {
            self.0.push((written, field));
        }
    }
}

/// Reads an object, and sets the cell of each field that it has. `false`: it is to be read in the thorough way, whatever was set.
pub(super) fn object<'a>(
    bytes: &'a [u8],
    fields: &[StructField],
    names: &mut Names<'a>,
    set: impl FnMut(usize, Cell<'a>),
) -> bool {
    // All at once, which is faster than text by text. Text that nobody reads may be anything, and is left to the thorough way.
    std::str::from_utf8(bytes).is_ok_and(|rest| Scanner { rest }.object(fields, names, set).is_some())
}

/// Reads from the front of what is left.
struct Scanner<'a> {
    rest: &'a str,
}

/// A value as it is written.
enum Token<'a> {
    Null,
    Bool(bool),
    Positive(u64),
    Negative(i64),
    /// Between the quotes.
    Text(&'a str),
    /// Everything else, still to be read.
    Other(&'a str),
}

impl<'a> Scanner<'a> {
    fn object(
        &mut self,
        fields: &[StructField],
        names: &mut Names<'a>,
        mut set: impl FnMut(usize, Cell<'a>),
    ) -> Option<()> {
        self.space();
        self.expect("{")?;
        self.space();
        if self.expect("}").is_some() {
            return self.end();
        }
        let mut next = 0;
        for place in 0.. {
            match self.name(fields, names, place, next)?.and_then(|index| Some((index, fields.get(index)?))) {
                Some((index, field)) => {
                    set(index, self.value(&field.column_type)?);
                    next = index + 1;
                }
                None => {
                    self.token()?;
                }
            }
            self.space();
            if self.expect(",").is_none() {
                break;
            }
            self.space();
        }
        self.expect("}")?;
        self.end()
    }

    fn end(&mut self) -> Option<()> {
        self.space();
        self.rest.is_empty().then_some(())
    }

    fn space(&mut self) {
        const SPACE: [char; 4] = [' ', '\n', '\t', '\r'];
        // Mostly there is none.
        if self.rest.as_bytes().first().is_some_and(|byte| *byte <= b' ') {
            self.rest = self.rest.trim_start_matches(SPACE);
        }
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// The field of a name, and what is before the value.
    fn name(
        &mut self,
        fields: &[StructField],
        names: &mut Names<'a>,
        place: usize,
        next: usize,
    ) -> Option<Option<usize>> {
        let before = self.rest;
        if let Some((name, field)) = names.0.get(place)
            && let Some(rest) = before.strip_prefix(name)
        {
            self.rest = rest;
            // As many as there were, or more.
            self.space();
            return Some(*field);
        }
        self.expect("\"")?;
        let field = find(fields, self.plain_text()?, next);
        self.space();
        self.expect(":")?;
        self.space();
        let written = before.get(..before.len() - self.rest.len())?;
        names.remember(place, written, field);
        Some(field)
    }

    /// Up to the closing quote, when all of it stands for itself.
    fn plain_text(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.split_at_checked(plain(self.rest.as_bytes()))?;
        self.rest = rest.strip_prefix('"')?;
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
            Token::Text(text) if *column_type == ColumnType::String => Some(Cell::String(Cow::Borrowed(text))),
            Token::Text(text) => seed.visit_borrowed_str::<Refused>(text).ok(),
            Token::Null => seed.visit_unit::<Refused>().ok(),
            Token::Bool(value) => seed.visit_bool::<Refused>(value).ok(),
            Token::Positive(value) => seed.visit_u64::<Refused>(value).ok(),
            Token::Negative(value) => seed.visit_i64::<Refused>(value).ok(),
            Token::Other(raw) => seed.deserialize(&mut serde_json::Deserializer::from_str(raw)).ok(),
        }
    }

    fn token(&mut self) -> Option<Token<'a>> {
        let before = self.rest;
        match before.as_bytes().first()? {
            b'"' => {
                self.expect("\"")?;
                if let Some(text) = self.plain_text() {
                    return Some(Token::Text(text));
                }
            }
            b'-' => {
                self.expect("-")?;
                if let Some(value @ 1..) = self.whole() {
                    return Some(Token::Negative(-value));
                }
            }
            b'0'..=b'9' => {
                if let Some(value) = self.whole() {
                    return Some(Token::Positive(value.unsigned_abs()));
                }
            }
            b'n' => return self.expect("null").map(|()| Token::Null),
            b't' => return self.expect("true").map(|()| Token::Bool(true)),
            b'f' => return self.expect("false").map(|()| Token::Bool(false)),
            _ => {}
        }
        self.rest = before;
        self.raw().map(Token::Other)
    }

    /// A whole number without a sign.
    fn whole(&mut self) -> Option<i64> {
        let digits = self.rest.as_bytes();
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
        if len == 0 || has_leading_zero || matches!(digits.get(len), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.rest = self.rest.get(len..)?;
        Some(value)
    }

    /// Any value, as it is written.
    fn raw(&mut self) -> Option<&'a str> {
        let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(self.rest)).ok()?.get();
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
