//! Informational responses (RFC 9110 section 15.2) between an upstream and the connection of the
//! client.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use http::StatusCode;
use http::header::CONTENT_LENGTH;

use super::hop_by_hop;
use crate::http::headers::Headers;
use crate::http::message::Response;

/// The most that wait at once. Further ones are dropped: a client needs none of them.
const MOST: usize = 16;

/// The queue of informational responses to the request whose service is being polled. Both ends are
/// in one task, which polls one after the other: neither wakes the other, and no request finds those
/// of another.
#[derive(Clone, Debug, Default)]
pub struct InformationalQueue(Rc<RefCell<Vec<Response<()>>>>);

impl InformationalQueue {
    /// Queues a response for the client, without hop-by-hop fields and a length, which it has not
    /// (RFC 9110 section 8.6). Drops `100 Continue`: the proxy sends its own.
    pub fn send(&self, mut response: Response<()>) {
        if response.status() == StatusCode::CONTINUE {
            return;
        }
        hop_by_hop::remove(response.headers_mut());
        response.headers_mut().remove(CONTENT_LENGTH);
        let mut waiting = self.0.borrow_mut();
        if waiting.len() < MOST {
            waiting.push(response);
        }
    }

    /// Changes the fields of waiting responses.
    pub(crate) fn change(&self, change: impl Fn(&mut Headers)) {
        let mut waiting = self.0.borrow_mut();
        waiting
            .iter_mut()
            .for_each(|response| change(response.headers_mut()));
    }

    /// Returns true if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Drops waiting responses.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Takes the waiting responses.
    pub(crate) fn take(&self) -> Vec<Response<()>> {
        mem::take(&mut *self.0.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CONNECTION, LINK};
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_bounded_number_waits_without_hop_by_hop_fields() {
        let interim = InformationalQueue::default();
        assert!(interim.take().is_empty());
        let hints = || {
            let mut hints = Response::new(());
            *hints.status_mut() = StatusCode::EARLY_HINTS;
            let headers = hints.headers_mut();
            headers.insert(LINK, HeaderValue::from_static("</a>"));
            headers.insert(
                HeaderName::from_static("x-hop"),
                HeaderValue::from_static("1"),
            );
            headers.insert(CONNECTION, HeaderValue::from_static("x-hop"));
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            hints
        };
        (0..100).for_each(|_| interim.send(hints()));
        let taken = interim.take();
        assert_eq!(taken.len(), MOST);
        assert_eq!(taken[0].headers().len(), 1);
        assert!(interim.take().is_empty());
        let mut own = Response::new(());
        *own.status_mut() = StatusCode::CONTINUE;
        interim.send(own);
        assert!(interim.take().is_empty());
    }
}
