//! HTTP/2 with an endpoint: requests of a worker share connections, a stream for each. The task of
//! a request sends and receives its stream; a task for each connection moves the frames.

mod connection;
mod download;
mod exchange;
mod io_counts;
mod keep_alive;
mod own_connection;
mod request;
mod upload;

use std::future::poll_fn;

pub(in crate::upstream) use connection::{Room, SharedConnection, StreamPermit};
pub(in crate::upstream) use exchange::StreamExchange;
pub(in crate::upstream) use own_connection::{WholeResponse, http2_exchange};

use crate::http::body::RequestBody;
use crate::upstream::attempt::{Attempt, OutboundRequest};
use crate::upstream::error::UpstreamErrorKind;
use crate::upstream::host::InFlight;
use crate::upstream::session::body::{Exchange, UpstreamBody};

/// A stream for one request.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Session {
    pub permit: StreamPermit,
    pub host: InFlight,
}

impl Http2Session {
    /// Sends a request, and waits for the head of the response.
    pub(in crate::upstream) async fn send(self, outbound: &mut OutboundRequest<'_>) -> Attempt {
        let timeouts = &outbound.spec.timeouts;
        let mut exchange = match StreamExchange::begin(self, outbound) {
            Ok(exchange) => exchange,
            Err((session, kind)) => {
                return Attempt {
                    is_unprocessed: true,
                    ..Attempt::failed(kind, session.host)
                };
            }
        };
        match poll_fn(|cx| exchange.poll_head(cx, outbound)).await {
            Some(Ok(head)) => {
                let is_tunnel = exchange.is_tunnel();
                let exchange = Exchange::Http2(exchange);
                let body = UpstreamBody::new(exchange, is_tunnel, head.headers(), timeouts);
                Attempt::from(Ok(head.map(|()| body)))
            }
            None => {
                let late = UpstreamErrorKind::ResponseTimeout(timeouts.response);
                Attempt::failed(late, exchange.session.host)
            }
            Some(Err(UpstreamErrorKind::Reset(reset)))
                if let Some(time) = exchange.missed_deadline(&reset) =>
            {
                Attempt::failed(UpstreamErrorKind::Deadline(time), exchange.session.host)
            }
            Some(Err(kind)) => {
                let is_unprocessed = exchange.is_unprocessed;
                let (body, host) = exchange.into_untouched_body();
                *outbound.request.body_mut() = body.unwrap_or_else(RequestBody::empty);
                Attempt {
                    is_unprocessed,
                    ..Attempt::failed(kind, host)
                }
            }
        }
    }
}
