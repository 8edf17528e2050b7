//! Live events, over server-sent events, with reconnection.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use loxley_api::{ApiError, ErrorCode, Event};

use crate::transport::{Ask, Transport};
use crate::{ClientError, Patience};

/// No single event is longer.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// A stream of events. It connects by itself, and again when the connection breaks; what happened
/// in between follows, or an event that says how much is missing.
#[derive(Debug)]
pub struct Events {
    transport: Transport,
    path: &'static str,
    last: Option<u64>,
    body: Option<Incoming>,
    buffer: BytesMut,
    patience: Patience,
}

impl Events {
    pub(crate) fn new(transport: Transport, last: Option<u64>) -> Self {
        Self {
            transport,
            path: "/v1/events",
            last,
            body: None,
            buffer: BytesMut::new(),
            patience: Patience::new(),
        }
    }

    pub(crate) fn of_ends(transport: Transport) -> Self {
        Self {
            path: "/v1/events?only_ends=true",
            ..Self::new(transport, None)
        }
    }

    /// Connects now, if that has not happened: whatever happens from then on is heard.
    pub async fn connect(&mut self) -> Result<(), ClientError> {
        if self.body.is_none() {
            self.buffer.clear();
            let mut ask = Ask::get(self.path);
            if let Some(last) = self.last {
                let name = HeaderName::from_static("last-event-id");
                ask = ask.header(name, HeaderValue::from(last));
            }
            self.body = Some(self.transport.stream(ask).await?.into_body());
        }
        Ok(())
    }

    /// The next event. Waits for the server when it is away; an error is for good.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if let Some(event) = self.buffered()? {
                self.last = Some(event.sequence);
                self.patience.reset();
                return Ok(event);
            }
            match self.more().await {
                Ok(Some(data)) => self.buffer.extend_from_slice(&data),
                Ok(None) => self.pause().await,
                Err(error) if error.is_passing() => self.pause().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Some more of the stream; nothing when it ended.
    async fn more(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.connect().await?;
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        loop {
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
                // Broken or closed: the same to us.
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    async fn pause(&mut self) {
        self.body = None;
        tokio::time::sleep(self.patience.next_pause()).await;
    }

    fn buffered(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(block) = take_block(&mut self.buffer) {
            let data = data_of(&block);
            if data.is_empty() {
                // A comment that keeps the connection awake.
                continue;
            }
            let event = serde_json::from_slice(&data);
            return event
                .map(Some)
                .map_err(|source| ClientError::Unintelligible {
                    url: self.transport.url().to_owned(),
                    status: 200,
                    source: Some(source),
                });
        }
        if self.buffer.len() > EVENT_BYTES_MAX {
            let message = format!("an event has more than {EVENT_BYTES_MAX} bytes");
            return Err(ClientError::Refused(ApiError::new(
                ErrorCode::TooLarge,
                message,
            )));
        }
        Ok(None)
    }
}

/// Cuts off the first whole block, which ends with an empty line.
fn take_block(buffer: &mut BytesMut) -> Option<BytesMut> {
    let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
    Some(buffer.split_to(end + 2))
}

/// The `data:` lines of a block, put together.
fn data_of(block: &[u8]) -> Vec<u8> {
    let lines = block.split(|byte| *byte == b'\n');
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let parts: Vec<&[u8]> = data
        .map(|line| line.strip_prefix(b" ").unwrap_or(line))
        .collect();
    parts.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_where_an_empty_line_is() {
        let mut buffer =
            BytesMut::from(&b": hello\n\nid: 7\ndata: {\"a\":\ndata: 1}\n\ndata: half"[..]);
        let first = take_block(&mut buffer).unwrap();
        assert_eq!(data_of(&first), b"");
        let second = take_block(&mut buffer).unwrap();
        assert_eq!(data_of(&second), b"{\"a\":\n1}");
        assert!(take_block(&mut buffer).is_none());
        assert_eq!(&buffer[..], b"data: half");
    }
}
