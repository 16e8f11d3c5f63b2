//! WebSocket over HTTP/2 (RFC 8441). To the service, an extended CONNECT looks like the upgrade of
//! HTTP/1.1, and its 101 becomes a 200 on whose stream both sides send.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT};
use http::{Method, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::activity::ExchangeGuard;
use crate::http::body::{BodySender, Demand, ReceiveError, RequestBody, body_channel};
use crate::http::message::{Request, Response};
use crate::http::websocket;

/// Bytes to read at once from the client.
const READ: usize = 16 * 1024;

/// How often a half-closed tunnel is checked for a reset by its client.
const RESET_CHECK: Duration = Duration::from_secs(1);

/// A tunnel that a client asks for.
#[derive(Debug)]
pub(super) struct Tunnel {
    upgrade: OnUpgrade,
    sender: BodySender,
    /// The answer of an upstream that has read the request's key.
    accept: websocket::Accept,
}

impl Tunnel {
    /// Turns an extended CONNECT for a WebSocket into a request to upgrade. Returns other requests
    /// as they are.
    pub(super) fn of(
        mut request: hyper::Request<Incoming>,
    ) -> (Request<RequestBody>, Option<Box<Self>>) {
        let protocol = request.extensions().get::<Protocol>();
        let is_websocket = protocol.is_some_and(|protocol| protocol.as_str() == "websocket");
        if *request.method() != Method::CONNECT || !is_websocket {
            return (Request::from(request).map(RequestBody::from), None);
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let (sender, body) = body_channel(None);
        let mut request = Request::from(request).map(|_| RequestBody::tunnel(body));
        *request.method_mut() = Method::GET;
        websocket::add_key(request.headers_mut());
        let tunnel = Tunnel {
            upgrade,
            sender,
            accept: websocket::Accept::of(request.headers()),
        };
        (request, Some(Box::new(tunnel)))
    }

    /// Turns the response to the upgrade into one to CONNECT. Its body is that of the tunnel if the
    /// upstream has switched protocols, and is returned otherwise.
    pub(super) fn open<B>(
        self,
        response: Response<B>,
        mut exchange: ExchangeGuard,
    ) -> Response<Option<(B, ExchangeGuard)>>
    where
        B: Body<Data = Bytes> + Unpin + 'static,
    {
        let (mut head, body) = response.into_parts();
        let status = head.status();
        let is_accepted = self.accept.is_in(head.headers());
        if status == StatusCode::SWITCHING_PROTOCOLS && is_accepted {
            *head.status_mut() = StatusCode::OK;
            head.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
            tokio::task::spawn_local(self.run(body, exchange));
            return head.map(|()| None);
        }
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            // To a client of HTTP/2 this would be an open tunnel.
            *head.status_mut() = StatusCode::BAD_GATEWAY;
            head.headers_mut().remove(CONTENT_LENGTH);
            head.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
            exchange.finish();
            return head.map(|()| None);
        }
        head.map(|()| Some((body, exchange)))
    }

    /// Moves bytes both ways until both sides have ended, or one breaks off. A client that resets its
    /// stream ends both directions.
    async fn run<B>(self, mut body: B, mut exchange: ExchangeGuard)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let Ok(upgraded) = self.upgrade.await else {
            return;
        };
        let (reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        // A task of its own: both ends of a body in one task do not wake each other.
        let mut upload = tokio::task::spawn_local(upload(reader, self.sender));
        // The body ends once both directions have ended.
        let error = loop {
            exchange.polled();
            let sent = tokio::select! {
                biased;
                frame = body.frame() => match frame {
                    Some(Ok(frame)) => {
                        exchange.gave_frame();
                        send(frame, &mut writer).await
                    }
                    Some(Err(_)) | None => break None,
                },
                // hyper reads a reset as an end, and tells a writer alone.
                () = until_check(&mut upload) => writer.flush().await,
            };
            if let Err(error) = sent {
                break Some(error);
            }
        };
        match error {
            None => exchange.finish(),
            Some(error) => tracing::debug!(%error, "WebSocket broken off"),
        }
        upload.abort();
    }
}

/// Waits until it is time to find out if the client has reset the stream: at the end of its bytes, and
/// every second after it.
async fn until_check(upload: &mut JoinHandle<()>) {
    if upload.is_finished() {
        return tokio::time::sleep(RESET_CHECK).await;
    }
    let _ = upload.await;
    // hyper's task, which learns of the reset, may not have run yet.
    tokio::task::yield_now().await;
}

/// Sends the client's bytes, each only on demand.
async fn upload(mut reader: impl AsyncRead + Unpin, mut sender: BodySender) {
    let mut buffer = BytesMut::new();
    loop {
        let demand = poll_fn(|cx| match sender.demand(cx) {
            Demand::NotYet => Poll::Pending,
            demand => Poll::Ready(demand),
        });
        if demand.await == Demand::Never {
            return;
        }
        buffer.reserve(READ);
        let next = match reader.read_buf(&mut buffer).await {
            Ok(0) => None,
            Ok(_) => Some(Ok(Frame::data(buffer.split().freeze()))),
            Err(error) => Some(Err(ReceiveError::Closed(error))),
        };
        let has_ended = !matches!(next, Some(Ok(_)));
        let mut next = Some(next);
        poll_fn(|cx| {
            if let Some(next) = next.take() {
                sender.send(next, cx);
            }
            Poll::Ready(())
        })
        .await;
        if has_ended {
            return;
        }
    }
}

/// Sends bytes of the upstream. Empty trailers mean that it sends no more.
async fn send(frame: Frame<Bytes>, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    match frame.into_data() {
        Ok(data) => writer.write_all(&data).await,
        Err(_) => writer.shutdown().await,
    }
}
