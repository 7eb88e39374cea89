/// Byte strings in one buffer, each possibly absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesColumn {
    data: Vec<u8>,
    ends: Vec<usize>,
    valid: Vec<bool>,
}

impl BytesColumn {
    /// An empty column with room.
    #[must_use]
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows), valid: Vec::with_capacity(rows) }
    }

    /// A column in which every value is absent.
    #[must_use]
    pub fn absent(rows: usize) -> Self {
        Self { data: Vec::new(), ends: vec![0; rows], valid: vec![false; rows] }
    }

    /// Adds a value.
    pub fn push(&mut self, value: Option<&[u8]>) {
        self.data.extend_from_slice(value.unwrap_or_default());
        self.end(value.is_some());
    }

    /// Adds the values of another column.
    pub(crate) fn append(&mut self, other: Self) {
        let start = self.data.len();
        self.data.extend(other.data);
        self.ends.extend(other.ends.into_iter().map(|end| start + end));
        self.valid.extend(other.valid);
    }

    /// The buffer, to write the next value into. [`Self::end`] ends it.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// Ends the value that was written into the buffer.
    pub(crate) fn end(&mut self, valid: bool) {
        self.ends.push(self.data.len());
        self.valid.push(valid);
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all values.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.data.len()
    }

    /// A value; `None`: absent, or past the end.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        if !self.valid.get(row).copied().unwrap_or_default() {
            return None;
        }
        let start = match row.checked_sub(1) {
            Some(previous) => self.ends.get(previous).copied()?,
            None => 0,
        };
        self.data.get(start..self.ends.get(row).copied()?)
    }
}
