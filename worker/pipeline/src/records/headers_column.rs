use std::ops::Range;

use super::Header;

/// The headers of many records in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadersColumn {
    data: Vec<u8>,
    entries: Vec<Entry>,
    /// Per record: the end of its entries.
    ends: Vec<usize>,
}

/// Both ranges lie in `data`; the name was a `str`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Range<usize>,
    value: Option<Range<usize>>,
}

impl HeadersColumn {
    pub(crate) fn of_empty_rows(rows: usize) -> Self {
        Self { ends: vec![0; rows], ..Self::default() }
    }

    /// Adds the headers of other records.
    pub(crate) fn append(&mut self, other: Self) {
        let (start, first) = (self.data.len(), self.entries.len());
        let moved = |range: Range<usize>| start + range.start..start + range.end;
        self.data.extend(other.data);
        self.entries
            .extend(other.entries.into_iter().map(|e| Entry { name: moved(e.name), value: e.value.map(moved) }));
        self.ends.extend(other.ends.into_iter().map(|end| first + end));
    }

    pub(crate) fn add(&mut self, header: Header<'_>) {
        let name = self.store(header.name.as_bytes());
        let value = header.value.map(|v| self.store(v));
        self.entries.push(Entry { name, value });
    }

    pub(crate) fn end_row(&mut self) {
        self.ends.push(self.entries.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = Header<'_>> {
        let end = self.ends.get(row).copied().unwrap_or_default();
        let start = row.checked_sub(1).and_then(|r| self.ends.get(r).copied()).unwrap_or_default();
        self.entries.get(start..end).unwrap_or_default().iter().map(|e| Header {
            name: self.data.get(e.name.clone()).and_then(|n| std::str::from_utf8(n).ok()).unwrap_or_default(),
            value: e.value.clone().and_then(|v| self.data.get(v)),
        })
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        start..self.data.len()
    }
}
