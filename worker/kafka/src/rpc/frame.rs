//! Frames: what is written to and read from a connection.
//!
//! Everything read comes from a peer that may not be a broker at all. Lengths are checked before they are believed: that of
//! a frame against [`MAX_FRAME`], those inside a frame against what is left of it, since the codec reserves memory for
//! arrays by the length they claim.

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::buf::ByteBuf;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

use super::api::Wire;

/// Largest frame that is accepted. The largest answers are metadata of many partitions: about 60 bytes each.
pub(super) const MAX_FRAME: usize = 16 << 20;

const TAG_SLACK: usize = 64;

/// Where the correlation id is in a request: length (4), key (2), version (2).
const CORRELATION_AT: std::ops::Range<usize> = 8..12;

/// A whole request, its correlation id still 0.
pub(super) fn encode<R: Wire>(request: &R, version: i16, client_id: &str) -> Result<BytesMut, String> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::with_capacity(256);
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|error| error.to_string())?;
    request.encode(&mut frame, version).map_err(|error| error.to_string())?;
    let length = i32::try_from(frame.len() - 4).map_err(|_| "longer than a frame can be".to_owned())?;
    if let Some(slot) = frame.get_mut(..4) {
        slot.copy_from_slice(&length.to_be_bytes());
    }
    Ok(frame)
}

/// Writes the correlation id into an encoded request.
pub(super) fn number(frame: &mut BytesMut, correlation_id: i32) {
    if let Some(slot) = frame.get_mut(CORRELATION_AT) {
        slot.copy_from_slice(&correlation_id.to_be_bytes());
    }
}

/// Reads an answer: header (with the correlation id) and body.
pub(super) fn decode<R>(frame: Bytes, version: i16) -> Result<R, String>
where
    R: Decodable + HeaderVersion,
{
    let header_version = R::header_version(version);
    let lengths = if header_version >= 1 { Lengths::Varint } else { Lengths::Fixed };
    let mut frame = Guarded::new(frame, lengths);
    // The header's own number is no length.
    frame.lengths = Lengths::Varint;
    ResponseHeader::decode(&mut frame, header_version).map_err(|error| error.to_string())?;
    frame.lengths = lengths;
    R::decode(&mut frame, version).map_err(|error| error.to_string())
}

/// How lengths are written in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// Flexible versions: every variable-length integer is a length, a count or a tag.
    Varint,
    /// The two old messages of a connection's beginning (ApiVersions v0, SaslHandshake v1): every `i32` is a length.
    /// All other calls are made in flexible versions only. Variable-length integers are watched here too: newer ApiVersions have
    /// them behind the same old header.
    Fixed,
}

/// A buffer that refuses lengths larger than what is left.
struct Guarded {
    bytes: Bytes,
    lengths: Lengths,
    partial: u64,
    shift: u32,
}

impl Guarded {
    fn new(bytes: Bytes, lengths: Lengths) -> Self {
        Self { bytes, lengths, partial: 0, shift: 0 }
    }

    fn check(&self, length: u64) -> Result<(), TryGetError> {
        // An element takes a byte at least. The slack is for tags, which are small numbers but no lengths.
        let available = self.bytes.remaining();
        if length > (available + TAG_SLACK) as u64 {
            return Err(TryGetError { requested: usize::try_from(length).unwrap_or(usize::MAX), available });
        }
        Ok(())
    }
}

impl Buf for Guarded {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.bytes.try_get_u8()?;
        self.partial |= u64::from(byte & 0x7f) << self.shift;
        // Five bytes are the most that the codec reads as one number.
        if byte < 0x80 || self.shift >= 28 {
            let length = std::mem::take(&mut self.partial);
            self.shift = 0;
            self.check(length)?;
        } else {
            self.shift += 7;
        }
        Ok(byte)
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        let value = self.bytes.try_get_i32()?;
        if self.lengths == Lengths::Fixed {
            self.check(u64::try_from(value).unwrap_or(0))?;
        }
        Ok(value)
    }
}

impl ByteBuf for Guarded {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.bytes.split_to(size)
    }
}

#[cfg(test)]
mod tests;
