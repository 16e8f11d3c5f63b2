//! Replies of Redis: the same however they are cut, in bounded memory, and what the charge script seems
//! to say is a decision or an error.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fixture::{self, NOW};
use crate::limiter::{Algorithm, Fingerprint};
use crate::proxy::Ruleset;
use crate::store::Ask;
use crate::store::redis::client::Fault;
use crate::store::redis::{BucketCharge, ChargeRequest, ScriptReply, answers};

/// The commands that the replies of an input answer.
const COMMANDS: usize = 4;

static RULESET: LazyLock<Arc<Ruleset>> = LazyLock::new(|| {
    let loaded = fixture::loaded(include_str!("snapshot.yaml"));
    fixture::ruleset(fixture::rules(&loaded))
});

/// The first byte chooses the charges, the next eight where the replies are cut.
pub(super) fn run(data: &[u8]) {
    let Some((choice, seed, bytes)) = fixture::choices(data) else {
        return;
    };
    let whole = replies(&[bytes]);
    let cut = replies(&fixture::cut(bytes, seed));
    // What isn't RESP ends the connection, but where depends on the cuts: `*0-1` is either no length,
    // or a list and an error.
    if whole.is_ok() {
        // A double may be no number, which equals nothing.
        let (whole, cut) = (format!("{whole:?}"), format!("{cut:?}"));
        assert_eq!(whole, cut, "by how they are cut");
    }
    for reply in whole.into_iter().flatten().flatten() {
        read(choice, &reply);
    }
}

fn replies(pieces: &[&[u8]]) -> Result<Vec<Result<Value, Fault>>, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let stream = Replies {
        pieces: pieces.iter().rev().map(|piece| piece.to_vec()).collect(),
        is_asked: false,
        waker: None,
    };
    runtime.block_on(answers(stream, COMMANDS))
}

/// Reads a reply as one of the charge script, and makes the next call if it asks for one.
fn read(choice: u8, reply: &Value) {
    let tables: Vec<_> = RULESET.tables().map(|(_, table)| table).collect();
    let names: Vec<_> = (0..tables.len())
        .map(|place| format!("bucket-{place}"))
        .collect();
    let chosen = (0..tables.len()).filter(|place| choice >> place & 1 == 1);
    let charges: Vec<_> = chosen
        .map(|place| charge(tables[place].algorithm(), &names[place], choice))
        .collect();
    let request = ChargeRequest {
        charges: &charges,
        enforced: charges.len(),
        ask: Ask::Charge,
        estimated_now: NOW,
        lease: "a",
        undecided: "",
        undecided_for: None,
    };
    match request.read(reply, NOW) {
        Ok(ScriptReply::Decided(decided)) => assert!(decided.replies.len() <= charges.len()),
        Ok(ScriptReply::Retry(estimated_now)) => {
            let again = ChargeRequest {
                estimated_now,
                ..request
            };
            _ = again.script_call();
        }
        Err(_) => {}
    }
}

fn charge<'a>(algorithm: &'a Algorithm, name: &'a str, choice: u8) -> BucketCharge<'a> {
    let key = Fingerprint::from_bits(7);
    BucketCharge::new(algorithm, name.as_bytes(), key, u32::from(choice & 3))
}

/// A server that replies these pieces, last first, to whatever it is sent, and closes.
struct Replies {
    pieces: Vec<Vec<u8>>,
    is_asked: bool,
    waker: Option<std::task::Waker>,
}

impl AsyncRead for Replies {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(mut piece) = self.pieces.pop() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replies {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        self.waker
            .take()
            .into_iter()
            .for_each(std::task::Waker::wake);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
