//! Clocks for peers that do not begin to speak, and for those that do not take what they asked for.
//!
//! TLS and HTTP have limits of their own for a handshake and for the head of a request, but none for a peer
//! that opens HTTP/2 and says nothing, or that asks for much and reads none of it. Such a peer holds what was
//! made for it for as long as it likes. Here it is cut off.
//!
//! ```text
//!   HTTP ── Greeted ── TLS ── Taken ── TCP
//! ```
//!
//! What must stay true: [`Taken`] stands below TLS, where taken means taken by the system. What TLS takes into
//! its own buffers is nothing that the peer has read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// As much as HTTP/2 begins with: whoever has said so much is in the hands of the protocol.
const GREETING: usize = 24;

/// A stream whose peer has to begin.
pub(crate) struct Greeted<S> {
    stream: S,
    /// Bytes of the greeting that are still to come.
    silent: usize,
    patience: Pin<Box<Sleep>>,
}

/// A stream whose peer has to take what is written.
pub(crate) struct Taken<S> {
    stream: S,
    /// Runs while nothing is taken.
    stalled: Option<Pin<Box<Sleep>>>,
    stall_time: Duration,
}

impl<S> Greeted<S> {
    /// A stream whose peer has so long to begin.
    pub(crate) fn new(stream: S, greeting_time: Duration) -> Self {
        Self {
            stream,
            silent: GREETING,
            patience: Box::pin(tokio::time::sleep(greeting_time)),
        }
    }
}

impl<S> Taken<S> {
    /// A stream whose peer has so long to take each piece.
    pub(crate) fn new(stream: S, stall_time: Duration) -> Self {
        Self {
            stream,
            stalled: None,
            stall_time,
        }
    }

    /// What a write came to, or the end of patience with a peer that takes nothing.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let time = self.stall_time;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.silent > 0 {
            self.silent = self.silent.saturating_sub(buffer.filled().len() - before);
            if read.is_pending() && self.patience.as_mut().poll(context).is_ready() {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the peer says nothing");
                return Poll::Ready(Err(error));
            }
        }
        read
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, ended)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    const SHORT: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn a_peer_that_says_nothing_or_trickles_is_cut_off() {
        let (mut peer, ours) = tokio::io::duplex(64);
        let mut guarded = Greeted::new(ours, SHORT);
        let begun = Instant::now();
        peer.write_all(b"PRI * HTTP").await.unwrap();
        let mut all = Vec::new();
        let error = guarded.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(all.len(), 10);
        assert!(begun.elapsed() >= SHORT);
    }

    #[tokio::test]
    async fn a_peer_that_has_greeted_may_be_silent() {
        let (mut peer, ours) = tokio::io::duplex(64);
        let mut guarded = Greeted::new(ours, SHORT);
        peer.write_all(&[b'x'; GREETING]).await.unwrap();
        guarded.read_exact(&mut [0; GREETING]).await.unwrap();
        let quiet = tokio::time::timeout(SHORT * 2, guarded.read_u8()).await;
        assert!(quiet.is_err(), "nothing happens, and that is fine");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_cut_off_and_a_slow_one_is_not() {
        let (mut peer, ours) = tokio::io::duplex(64);
        let mut guarded = Taken::new(ours, SHORT);
        let writing = tokio::spawn(async move {
            guarded.write_all(&[b'x'; 640]).await?;
            guarded.write_all(&[b'y'; 640]).await
        });
        for _ in 0..10 {
            tokio::time::sleep(SHORT / 8).await;
            peer.read_exact(&mut [0; 64]).await.unwrap();
        }
        let begun = Instant::now();
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= SHORT / 2);
    }
}
