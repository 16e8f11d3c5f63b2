//! Interim responses (RFC 9110 section 15.2) on their way from an upstream to the connection of the client.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use http::StatusCode;

use super::hop_by_hop;
use crate::http::message::Response;

/// The most that wait at once. More are dropped: a client can do without each of them.
const MOST: usize = 16;

/// Where a connection takes the interim responses of the request that it carries. Both ends are in one
/// task, which asks this one after the other: nobody is woken.
#[derive(Clone, Debug, Default)]
pub struct InformationalQueue(Rc<RefCell<Vec<Response<()>>>>);

impl InformationalQueue {
    /// Sends one to the client, without the fields for one hop. `100 Continue` stays here: the proxy sends
    /// its own.
    pub fn send(&self, mut response: Response<()>) {
        if response.status() == StatusCode::CONTINUE {
            return;
        }
        hop_by_hop::remove(response.headers_mut());
        let mut waiting = self.0.borrow_mut();
        if waiting.len() < MOST {
            waiting.push(response);
        }
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Drops those that wait.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Those that were sent since.
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
    fn a_bounded_number_waits_without_fields_for_one_hop() {
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
