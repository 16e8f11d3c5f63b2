//! Costs that responses settle: an origin that states them, and the quota that remains.

use super::client::Response;
use super::origin::{Origin, Step, answer, ok, raw};

/// An origin whose responses the end of the path describes: `/status/401`, `/used/7`,
/// `/bytes/3000`, `/reset`, `/hang`.
pub fn origin() -> Origin {
    Origin::start(|request| {
        let mut words = request.target.rsplit('/');
        let (last, what) = (words.next().unwrap_or_default(), words.next());
        match (what, last) {
            (Some("status"), status) => answer(status.parse().expect("a status"), "x"),
            (Some("used"), units) => raw(&format!(
                "HTTP/1.1 200 OK\r\nx-tokens-used: {units}\r\nContent-Length: 2\r\n\r\nok"
            )),
            (Some("bytes"), length) => ok(&"x".repeat(length.parse().expect("a length"))),
            (_, "reset") => vec![Step::Reset],
            (_, "hang") => vec![Step::Hang],
            _ => ok("ok"),
        }
    })
}

/// The remaining quota in a response.
#[track_caller]
pub fn left(response: &Response) -> usize {
    let state = response.expect_header("ratelimit");
    let (_, rest) = state.split_once(";r=").expect("what remains");
    let digits = rest.split(';').next().expect("a number");
    digits.parse().expect("a number")
}
