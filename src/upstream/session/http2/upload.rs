//! The rest of a request's body, which a task sends to the host beside the response.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::Reason;
use tokio::task::JoinHandle;
use tokio::task::coop::unconstrained;

use crate::http::body::{RequestBody, RequestBodyError};
use crate::http::http2::{BodyUpload, UploadError};

/// The body of a request, and its stream to the host.
pub(super) type Upload = BodyUpload<RequestBody>;

/// A task that uploads. Dropping this ends it.
#[derive(Debug)]
pub(super) struct UploadTask {
    /// The frames that were received from the client.
    received: Rc<Cell<u32>>,
    seen: u32,
    task: JoinHandle<Result<(), RequestBodyError>>,
}

impl UploadTask {
    /// Sends the rest in a task of its own, so that neither direction waits for the other. Pauses of
    /// the client have no bound of their own: the response's time-out counts both directions.
    ///
    /// In a tunnel, the rest is what the client sends from now on.
    pub(super) fn spawn(mut upload: Upload, is_tunnel: bool) -> Self {
        if is_tunnel {
            upload.body.open_tunnel()
        } else {
            upload.body.allow_pauses()
        }
        let received = Rc::new(Cell::default());
        let noted = Rc::clone(&received);
        let task = tokio::task::spawn_local(async move {
            let sent = poll_fn(|cx| {
                let sent = upload.poll_send(cx);
                noted.set(upload.taken);
                sent
            });
            match sent.await {
                Err(UploadError::Body(error)) => {
                    upload.stream.send_reset(Reason::CANCEL);
                    Err(error)
                }
                Ok(()) | Err(UploadError::Stream) => Ok(()),
            }
        });
        UploadTask {
            received,
            seen: 0,
            task,
        }
    }

    /// Returns true if there was progress since the last call.
    pub(super) fn has_progressed(&mut self) -> bool {
        let received = self.received.get();
        std::mem::replace(&mut self.seen, received) != received
    }

    /// The reason why the client's body broke off.
    pub(super) fn take_failure(&mut self) -> Option<RequestBodyError> {
        match self.poll_ended(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent.err(),
            Poll::Pending => None,
        }
    }

    /// Returns true at the end of the upload.
    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Becomes ready, once, at the end of the upload.
    pub(super) fn poll_ended(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), RequestBodyError>> {
        let ended = pin!(unconstrained(&mut self.task)).poll(cx);
        // A panic is the task's own.
        ended.map(|ended| ended.unwrap_or(Ok(())))
    }
}

impl Drop for UploadTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
