//! The lines of a stream, each as long as an object may be.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use env::Clock;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Answer, Error};

/// Longer than any object that a store of Kubernetes takes.
const MAX_LINE: usize = 16 << 20;

/// A stream, line by line.
pub struct Lines {
    clock: Arc<dyn Clock>,
    body: Incoming,
    rest: BytesMut,
    /// So much of `rest` holds no end of a line.
    looked_at: usize,
    idle: Duration,
}

impl Lines {
    pub(super) fn new(clock: Arc<dyn Clock>, answer: Answer, idle: Duration) -> Lines {
        Lines { clock, body: answer.response.into_body(), rest: BytesMut::new(), looked_at: 0, idle }
    }

    /// The next line without its end; `None` at the end of the stream. Silence for longer than is usual is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = take_line(&mut self.rest, &mut self.looked_at) {
                return Ok(Some(line));
            }
            if self.rest.len() > MAX_LINE {
                return Err(Error::TooLarge(MAX_LINE));
            }
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                () = self.clock.sleep(self.idle) => return Err(Error::Timeout(self.idle)),
            };
            let Some(frame) = frame else { return Ok(take_rest(&mut self.rest)) };
            let frame = frame.map_err(|error| Error::broken(&error))?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

/// The last line need not have an end.
fn take_rest(rest: &mut BytesMut) -> Option<Bytes> {
    Some(rest.split().freeze()).filter(|rest| !rest.is_empty())
}

fn take_line(rest: &mut BytesMut, looked_at: &mut usize) -> Option<Bytes> {
    let unseen = rest.get(*looked_at..)?;
    match memchr::memchr(b'\n', unseen) {
        Some(at) => {
            let end = *looked_at + at;
            let mut line = rest.split_to(end + 1);
            line.truncate(end);
            *looked_at = 0;
            Some(line.freeze())
        }
        None => {
            *looked_at = rest.len();
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_wherever_they_are_cut() {
        let (mut rest, mut looked_at, mut lines) = (BytesMut::new(), 0, Vec::new());
        for part in ["{\"a\"", ":1}", "\n", "{}\n{\"b\":", "2}\n", "tail"] {
            rest.extend_from_slice(part.as_bytes());
            while let Some(line) = take_line(&mut rest, &mut looked_at) {
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        assert_eq!(lines, ["{\"a\":1}", "{}", "{\"b\":2}"]);
        assert_eq!(take_rest(&mut rest).as_deref(), Some(&b"tail"[..]));
        assert_eq!(take_rest(&mut rest), None);
    }
}
