//! The receiving side of a stream, once the head of its response has come.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::connection::StreamPermit;
use super::upload::{Upload, UploadTask};
use crate::http::body::{PolledFrame, StreamBody};
use crate::upstream::UpstreamErrorKind;

/// The receiving side of a stream.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Download {
    /// `None` for a response without a body.
    body: Option<StreamBody>,
    /// The rest of the request, if it did not end before the head of the response.
    upload: Option<UploadTask>,
    is_tunnel: bool,
    /// The host sends no more in a tunnel; the client may.
    is_half_closed: bool,
}

impl Download {
    /// Receives a body, while the rest of the request is sent.
    pub(super) fn new(body: StreamBody, upload: Option<Upload>, is_tunnel: bool) -> Self {
        Download {
            body: Some(body),
            upload: upload.map(|upload| UploadTask::spawn(upload, is_tunnel)),
            is_tunnel,
            is_half_closed: false,
        }
    }

    /// Receives the next frame; `None` at the end.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<UpstreamErrorKind> {
        if self.is_half_closed {
            return match &mut self.upload {
                Some(upload) => upload.poll_ended(cx).map(|_| None),
                None => Poll::Ready(None),
            };
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        Poll::Ready(match ready!(body.poll_frame(cx)) {
            Some(Err(error)) => Some(Err(self.error(error))),
            Some(Ok(frame)) if frame.is_data() || !self.is_tunnel => Some(Ok(frame)),
            _ if self.is_tunnel => {
                self.is_half_closed = true;
                Some(Ok(Frame::trailers(HeaderMap::new())))
            }
            _ => None,
        })
    }

    /// The reason for the end of the stream: the client's, if its upload has reset the stream.
    fn error(&mut self, error: h2::Error) -> UpstreamErrorKind {
        let failure = self.upload.as_mut().and_then(UploadTask::take_failure);
        failure.map_or_else(|| error.into(), UpstreamErrorKind::RequestBody)
    }

    /// Returns true if a part of the request was sent since the last call.
    pub(in crate::upstream) fn has_progressed(&mut self) -> bool {
        self.upload.as_mut().is_some_and(UploadTask::has_progressed)
    }

    /// Returns true if one direction has ended.
    pub(in crate::upstream) fn is_half_closed(&self) -> bool {
        self.is_half_closed || !self.is_uploading()
    }

    /// Returns true if a part of the request is still to be sent.
    pub(in crate::upstream) fn is_uploading(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| !upload.has_ended())
    }

    /// Returns true for trailers of several frames, of which h2 may have dropped a part.
    pub(super) fn cuts_trailers(
        &self,
        frame: &Option<Result<Frame<Bytes>, UpstreamErrorKind>>,
        permit: &StreamPermit,
    ) -> bool {
        let is_split = |body: &StreamBody| permit.0.state.io.take_split_end(body.stream_id());
        matches!(frame, Some(Ok(frame)) if frame.is_trailers())
            && !self.is_tunnel
            && self.body.as_ref().is_some_and(is_split)
    }

    /// Returns true if everything was received.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        !self.is_tunnel && self.body.as_ref().is_none_or(StreamBody::is_end_stream)
    }

    /// The missing bytes, if the length is known.
    pub(in crate::upstream) fn remaining(&self) -> Option<u64> {
        let remaining = |body: &StreamBody| body.size_hint().exact();
        self.body.as_ref().map_or(Some(0), remaining)
    }
}
