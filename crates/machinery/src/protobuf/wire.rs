//! The wire format of protobuf: tags and payloads.

use super::ProtoError;

/// How many groups may stand in one another where one is skipped.
const MAX_GROUPS: usize = 64;

/// Reads fields one after the other.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(super) enum Payload<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    /// A fixed 32-bit number or a group: nothing here has them.
    Other(u8),
}

impl<'b> Payload<'b> {
    fn wire_type(self) -> u8 {
        match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Other(wire_type) => wire_type,
        }
    }

    fn mismatch(self, field: &'static str) -> ProtoError {
        ProtoError::WireType { found: self.wire_type(), field }
    }

    pub fn varint(self, field: &'static str) -> Result<u64, ProtoError> {
        match self {
            Payload::Varint(value) => Ok(value),
            other => Err(other.mismatch(field)),
        }
    }

    pub fn fixed64(self, field: &'static str) -> Result<u64, ProtoError> {
        match self {
            Payload::Fixed64(value) => Ok(value),
            other => Err(other.mismatch(field)),
        }
    }

    pub fn bytes(self, field: &'static str) -> Result<&'b [u8], ProtoError> {
        match self {
            Payload::Bytes(bytes) => Ok(bytes),
            other => Err(other.mismatch(field)),
        }
    }
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and payload; `None` at the end.
    pub fn next(&mut self, message: &'static str) -> Result<Option<(u32, Payload<'b>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or(ProtoError::IllegalTag { message, tag })?;
        Ok(Some((number, self.payload((tag & 7) as u8)?)))
    }

    fn payload(&mut self, wire_type: u8) -> Result<Payload<'b>, ProtoError> {
        match wire_type {
            0 => Ok(Payload::Varint(self.varint()?)),
            1 => Ok(Payload::Fixed64(self.fixed64()?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| ProtoError::Overflow)?;
                Ok(Payload::Bytes(self.take(len)?))
            }
            3 => {
                self.skip_group()?;
                Ok(Payload::Other(3))
            }
            5 => {
                self.take(4)?;
                Ok(Payload::Other(5))
            }
            other => Err(ProtoError::IllegalWireType(other)),
        }
    }

    fn skip_group(&mut self) -> Result<(), ProtoError> {
        let mut open = 1;
        while open > 0 {
            match self.varint()? & 7 {
                3 if open == MAX_GROUPS => return Err(ProtoError::TooDeep),
                3 => open += 1,
                4 => open -= 1,
                wire_type => drop(self.payload(wire_type as u8)?),
            }
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn fixed64(&mut self) -> Result<u64, ProtoError> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    pub fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtoError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtoError::Overflow)
    }
}
