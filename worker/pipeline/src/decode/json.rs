use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use super::cell::Cell;
use crate::types::StructField;

mod scan;
mod value;

pub(super) use scan::Names;
use value::ValueSeed;

/// Characters of a value that an error shows.
const SHOWN: usize = 40;

/// Reads JSON objects into cells.
#[derive(Clone, Debug)]
pub(super) struct ObjectReader {
    fields: Vec<StructField>,
    /// For each field: the place of its cell.
    places: Vec<usize>,
}

/// The field of a name. Records of a topic mostly have their fields in one order, so the search begins after the last hit.
fn find(fields: &[StructField], name: &str, hint: usize) -> Option<usize> {
    let position = |range: &[StructField]| range.iter().position(|f| f.name == name);
    let (before, after) = fields.split_at_checked(hint).unwrap_or((fields, &[]));
    position(after).map(|i| i + hint).or_else(|| position(before))
}

impl ObjectReader {
    /// Fields, each with the place of its cell.
    pub(super) fn new(fields: Vec<(StructField, usize)>) -> Self {
        let (fields, places) = fields.into_iter().unzip();
        Self { fields, places }
    }

    /// Reads one object. Cells of absent fields stay as they are; of a field that is there twice, the last one counts. `names`: what was
    /// learnt from the objects before.
    pub(super) fn read<'a>(
        &self,
        bytes: &'a [u8],
        names: &mut Names<'a>,
        cells: &mut [Cell<'a>],
    ) -> Result<(), String> {
        let is_read = scan::object(bytes, &self.fields, names, |field, value| {
            if let Some(cell) = self.places.get(field).and_then(|place| cells.get_mut(*place)) {
                *cell = value;
            }
        });
        if is_read {
            return Ok(());
        }
        for place in &self.places {
            if let Some(cell) = cells.get_mut(*place) {
                *cell = Cell::Null;
            }
        }
        self.read_thoroughly(bytes, cells)
    }

    /// Reads everything that is right, and says of what is not what is wrong with it.
    fn read_thoroughly<'a>(&self, bytes: &'a [u8], cells: &mut [Cell<'a>]) -> Result<(), String> {
        let path = Path::default();
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let visitor = RecordVisitor { reader: self, cells, path: &path };
        serde::de::Deserializer::deserialize_any(&mut deserializer, visitor)
            .and_then(|()| deserializer.end())
            .map_err(|error| explain(bytes, &error, path))
    }
}

/// Where in the object an error is; filled from the inside out.
#[derive(Debug, Default)]
struct Path(RefCell<Vec<String>>);

impl Path {
    fn push(&self, step: impl FnOnce() -> String) {
        self.0.borrow_mut().push(step());
    }
}

/// The reason as a sentence: which field, what is wrong, at which byte.
fn explain(bytes: &[u8], error: &serde_json::Error, path: Path) -> String {
    if bytes.is_empty() {
        return "the value is empty, expected a JSON object".to_owned();
    }
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        return "the value begins with a byte order mark, which JSON does not allow".to_owned();
    }
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = in_our_words(error, text.strip_suffix(&place).unwrap_or(&text));
    let line_start: usize =
        bytes.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let byte = line_start + error.column();
    let mut steps = path.0.into_inner();
    steps.reverse();
    if steps.is_empty() {
        return format!("{message} at byte {byte}");
    }
    let field: String = steps.concat();
    format!("field `{}`: {message} at byte {byte}", field.strip_prefix('.').unwrap_or(&field))
}

/// Says of syntax errors that they are, and of other values than objects what they are.
fn in_our_words(error: &serde_json::Error, message: &str) -> String {
    if error.is_syntax() || error.is_eof() {
        return format!("not valid JSON: {message}");
    }
    match message.strip_prefix("invalid type: ").and_then(|m| m.split_once(", expected ")) {
        Some((found, expected)) => format!("expected {expected}, found {}", found.replace("sequence", "an array")),
        None => message.to_owned(),
    }
}

/// Text as it is shown in a reason.
pub(super) fn quote(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Reads a record.
struct RecordVisitor<'s, 'c, 'de> {
    reader: &'s ObjectReader,
    cells: &'c mut [Cell<'de>],
    path: &'s Path,
}

impl<'de> Visitor<'de> for RecordVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self { reader, cells, path } = self;
        visit_fields(map, &reader.fields, path, |field, value| {
            if let Some(cell) = reader.places.get(field).and_then(|place| cells.get_mut(*place)) {
                *cell = value;
            }
        })
    }
}

/// Reads a `STRUCT` in a record.
struct ObjectVisitor<'s, 'c, 'de> {
    fields: &'s [StructField],
    cells: &'c mut [Cell<'de>],
    path: &'s Path,
}

impl<'de> ObjectVisitor<'_, '_, 'de> {
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self { fields, cells, path } = self;
        visit_fields(map, fields, path, |field, value| {
            if let Some(cell) = cells.get_mut(field) {
                *cell = value;
            }
        })
    }
}

fn visit_fields<'de, A: MapAccess<'de>>(
    mut map: A,
    fields: &[StructField],
    path: &Path,
    mut set: impl FnMut(usize, Cell<'de>),
) -> Result<(), A::Error> {
    let mut hint = 0;
    while let Some(key) = map.next_key_seed(KeySeed { fields, hint })? {
        let Some((index, field)) = key.and_then(|i| Some((i, fields.get(i)?))) else {
            map.next_value::<IgnoredAny>()?;
            continue;
        };
        let value = map
            .next_value_seed(ValueSeed { column_type: &field.column_type, path })
            .inspect_err(|_| path.push(|| format!(".{}", field.name)))?;
        set(index, value);
        hint = index + 1;
    }
    Ok(())
}

/// Finds the field of a key without copying it.
struct KeySeed<'s> {
    fields: &'s [StructField],
    hint: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(find(self.fields, name, self.hint))
    }
}
