//! The rest of a request's body, which a task sends to the host beside the response.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::Reason;
use tokio::task::AbortHandle;

use crate::http::body::{RequestBody, RequestBodyError};
use crate::http::http2::{BodyUpload, UploadError};

/// The body of a request, and its stream to the host.
pub(super) type Upload = BodyUpload<RequestBody>;

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
        let progress = Rc::new(Progress::default());
        let shared = Rc::clone(&progress);
        let task = tokio::task::spawn_local(async move {
            let sent = poll_fn(|cx| {
                let sent = upload.poll_send(cx);
                shared.received.set(upload.taken);
                sent
            });
            if let Err(UploadError::Body(error)) = sent.await {
                upload.stream.send_reset(Reason::CANCEL);
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
