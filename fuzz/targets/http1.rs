//! HTTP/1 with a client, through the connection and the gateway: one answer to each request, none
//! behind the last, and nothing that hangs or grows.

use std::cell::RefCell;
use std::rc::Rc;

use http::Method;

use super::client::{self, Client};
use super::fixture;
use super::frames::PREFACE;
use super::response::responses;

/// The first byte chooses how the client behaves, the next eight where its bytes are cut.
pub(super) fn run(data: &[u8]) {
    let Some((choice, seed, bytes)) = fixture::choices(data) else {
        return;
    };
    if bytes.starts_with(PREFACE) {
        return;
    }
    let whole = serve(choice, &[bytes]);
    let cut = serve(choice, &fixture::cut(bytes, seed));
    assert_eq!(whole, cut, "by how the bytes are cut");
}

/// The answers to the requests of a client that sends these pieces: status, and length of the body. A
/// refusal of what is no request isn't one: where it is malformed shows at the end of its line.
fn serve(choice: u8, pieces: &[&[u8]]) -> Vec<(u16, usize)> {
    let sent: usize = pieces.iter().map(|piece| piece.len()).sum();
    let methods = Rc::new(RefCell::new(Vec::<Method>::new()));
    let client = Client {
        pieces,
        stays: choice & 1 == 0,
        is_trusted: choice & 2 == 0,
        // An answer has at most some KiB of its own.
        most: 16 * 1024 + 64 * sent,
    };
    let noted = Rc::clone(&methods);
    let served = client::serve(client, move |request| {
        noted.borrow_mut().push(request.method().clone());
    });
    let methods = methods.borrow();
    let answers = responses(&served.output, &methods, served.end.is_err());
    if answers.len() > methods.len() {
        let last = answers.last().expect("more than none");
        assert_eq!(answers.len(), methods.len() + 1, "two answers to a request");
        assert!(
            last.closes && last.status >= 400,
            "an answer to nothing: {last:?}"
        );
    }
    let answers = answers.iter().take(methods.len());
    answers
        .map(|answer| (answer.status, answer.body.len()))
        .collect()
}
