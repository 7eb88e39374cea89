use crate::limits::{OutputLimits, record_bytes};
use crate::records::{Header, OutputBatch, RawRecord};

/// Parts of a record that a dead letter leaves out when it would be too large otherwise.
#[derive(Clone, Copy)]
struct Dropped {
    value: bool,
    headers: bool,
    key: bool,
}

/// Least first. A dead letter is larger than its record, so the record of a topic can be too large for another one.
const DROPPED: [Dropped; 4] = [
    Dropped { value: false, headers: false, key: false },
    Dropped { value: true, headers: false, key: false },
    Dropped { value: true, headers: true, key: false },
    Dropped { value: true, headers: true, key: true },
];

/// The record as it was, with headers that say where it was and why it is here. What does not fit is left out whole, and a header
/// says how much it was.
pub(super) fn push(batch: &mut OutputBatch, topic: &str, record: &RawRecord<'_>, reason: &str, limits: OutputLimits) {
    for dropped in DROPPED {
        let (bytes, smallest) = (Letter::new(record, topic, reason, dropped).bytes(), dropped.key);
        if bytes <= limits.max_record_bytes {
            return Letter::new(record, topic, reason, dropped).push(batch);
        }
        if smallest {
            // Only the words about it are left to be shortened.
            let room = reason.len().saturating_sub(bytes - limits.max_record_bytes);
            let reason = fencepost_crds::conditions::clamp(reason, room);
            Letter::new(record, topic, &reason, dropped).push(batch);
        }
    }
}

struct Letter<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: &'a [Header<'a>],
    ours: Vec<(&'static str, String)>,
}

impl<'a> Letter<'a> {
    fn new(record: &'a RawRecord<'a>, topic: &str, reason: &str, dropped: Dropped) -> Self {
        let mut ours = vec![
            ("fencepost.source.topic", topic.to_owned()),
            ("fencepost.source.partition", record.partition.to_string()),
            ("fencepost.source.offset", record.offset.to_string()),
            ("fencepost.reason", reason.to_owned()),
        ];
        let mut letter =
            Self { key: record.key, value: record.value, headers: record.headers.as_slice(), ours: Vec::new() };
        // A tombstone stays one.
        if let Some(value) = record.value.filter(|_| dropped.value) {
            letter.value = Some(b"");
            ours.push(("fencepost.value.dropped", value.len().to_string()));
        }
        if dropped.headers && !record.headers.is_empty() {
            letter.headers = &[];
            ours.push((
                "fencepost.headers.dropped",
                record_bytes(None, None, record.headers.iter().copied()).to_string(),
            ));
        }
        if let Some(key) = record.key.filter(|_| dropped.key) {
            letter.key = None;
            ours.push(("fencepost.key.dropped", key.len().to_string()));
        }
        Self { ours, ..letter }
    }

    fn all_headers(&self) -> impl Iterator<Item = Header<'_>> {
        let ours = self.ours.iter().map(|(name, value)| Header { name, value: Some(value.as_bytes()) });
        self.headers.iter().copied().chain(ours)
    }

    fn bytes(&self) -> usize {
        record_bytes(self.key, self.value, self.all_headers())
    }

    fn push(&self, batch: &mut OutputBatch) {
        batch.push(self.key, self.value, None, self.all_headers());
    }
}
