//! The body of a request on its way to the host: as fast as the host's windows and the client
//! allow, and a frame at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::task::AbortHandle;

use crate::http::body::{RequestBody, RequestBodyError};

/// A request body, and the stream that it is sent on.
#[derive(Debug)]
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    body: RequestBody,
    /// The next frame, which waits for the host's window.
    next: Option<Bytes>,
    /// The frames that the client has sent.
    received: u32,
}

/// Reasons why an upload broke off.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The client's body broke off.
    Client(RequestBodyError),
    /// The stream has ended. The response says why.
    Stream,
}

impl Upload {
    pub(super) fn new(stream: SendStream<Bytes>, body: RequestBody) -> Self {
        Upload {
            stream,
            body,
            next: None,
            received: 0,
        }
    }

    /// The frames that were received from the client. Wraps around.
    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// Returns true if the client, and not the host, has to do something.
    pub(super) fn waits_for_client(&self) -> bool {
        self.next.is_none()
    }

    /// The body, if nothing was taken from it.
    pub(super) fn into_untouched_body(self) -> Option<RequestBody> {
        (self.received == 0).then_some(self.body)
    }

    /// Sends as much as possible. Ready at the end of the body.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        let failed = |_| UploadError::Stream;
        loop {
            if self.next.is_some() {
                ready!(self.poll_capacity(cx))?;
                let data = self.next.take().unwrap_or_default();
                let is_last = self.body.is_end_stream();
                self.stream.send_data(data, is_last).map_err(failed)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.received = self.received.wrapping_add(1);
            let Some(frame) = frame.transpose().map_err(UploadError::Client)? else {
                let sent = self.stream.send_data(Bytes::new(), true);
                return Poll::Ready(sent.map_err(failed));
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() && !self.body.is_end_stream() => {}
                Ok(data) => {
                    // One byte, since a larger claim takes the connection's window from others.
                    self.stream.reserve_capacity(usize::from(!data.is_empty()));
                    self.next = Some(data);
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let sent = self.stream.send_trailers(trailers);
                    return Poll::Ready(sent.map_err(failed));
                }
            }
        }
    }

    /// Waits until the host's windows have room for the next frame.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        let is_empty = self.next.as_ref().is_some_and(Bytes::is_empty);
        while !is_empty && self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(UploadError::Stream)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the rest in a task of its own, so that neither direction waits for the other. Pauses of
    /// the client have no bound of their own: the response's time-out counts both directions.
    ///
    /// In a tunnel, the rest is what the client sends from now on.
    pub(super) fn spawn(mut self, is_tunnel: bool) -> UploadTask {
        match is_tunnel {
            true => self.body.open_tunnel(),
            false => self.body.allow_pauses(),
        }
        let progress = Rc::new(Progress::default());
        let shared = Rc::clone(&progress);
        let task = tokio::task::spawn_local(async move {
            let sent = poll_fn(|cx| {
                let sent = self.poll_send(cx);
                shared.received.set(self.received);
                sent
            });
            if let Err(UploadError::Client(error)) = sent.await {
                self.stream.send_reset(Reason::CANCEL);
                *shared.failure.borrow_mut() = Some(error);
            }
            shared.has_ended.set(true);
            shared.waiter.take().inspect(Waker::wake_by_ref);
        });
        UploadTask {
            progress,
            seen: 0,
            task: task.abort_handle(),
        }
    }
}

/// A task that uploads. Dropping this ends it.
#[derive(Debug)]
pub(super) struct UploadTask {
    progress: Rc<Progress>,
    seen: u32,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Progress {
    received: Cell<u32>,
    has_ended: Cell<bool>,
    failure: RefCell<Option<RequestBodyError>>,
    /// The task that waits for the end.
    waiter: RefCell<Option<Waker>>,
}

impl UploadTask {
    /// Returns true if there was progress since the last call.
    pub(super) fn has_progressed(&mut self) -> bool {
        let received = self.progress.received.get();
        std::mem::replace(&mut self.seen, received) != received
    }

    /// The reason why the client's body broke off.
    pub(super) fn take_failure(&self) -> Option<RequestBodyError> {
        self.progress.failure.borrow_mut().take()
    }

    /// Returns true at the end of the upload.
    pub(super) fn has_ended(&self) -> bool {
        self.progress.has_ended.get()
    }

    /// Becomes ready at the end of the upload.
    pub(super) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_ended() {
            return Poll::Ready(());
        }
        self.progress.waiter.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
