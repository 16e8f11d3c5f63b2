//! A client of the gateway, over a pipe and on virtual time.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::task::{LocalSet, yield_now};
use tokio::time::timeout;

use super::fixture;
use crate::clock::Clock;
use crate::config;
use crate::http::body::RequestBody;
use crate::http::message::Request;
use crate::http::service::{BoxError, HttpService};
use crate::net::drain::DrainController;
use crate::proxy::{Gateway, gateway};
use crate::server::{ClientSpec, in_memory};

/// No connection lasts longer, whatever its client does: it has a bound for each wait.
const LONGEST: Duration = Duration::from_hours(3);

/// What a client does.
pub(super) struct Client<'a> {
    /// What it sends, in pieces.
    pub(super) pieces: &'a [&'a [u8]],
    /// It waits for the end of the connection, instead of ending its side.
    pub(super) stays: bool,
    /// It is a trusted proxy.
    pub(super) is_trusted: bool,
    /// The most bytes that it may get.
    pub(super) most: usize,
}

/// What came of it.
pub(super) struct Served {
    pub(super) output: Vec<u8>,
    pub(super) end: Result<(), BoxError>,
}

/// Between two clients: all buckets fill and all bans end, and windows begin as before.
const PAUSE: Duration = Duration::from_hours(2);

struct Proxy {
    gateway: Arc<Gateway>,
    clock: Arc<Clock>,
    spec: ClientSpec,
}

/// One for all clients: to build it takes a hundred times as long as to serve most of them.
static PROXY: LazyLock<Proxy> = LazyLock::new(|| {
    let loaded = fixture::loaded(include_str!("gateway.yaml"));
    let compiled = config::compile(&loaded).unwrap_or_else(|report| panic!("{report}"));
    let (gateway, clock) = fixture::gateway(compiled.rules);
    Proxy {
        gateway,
        clock,
        spec: compiled.process.server.client,
    }
});

/// Serves a client with full buckets, and calls `note` with each request.
pub(super) fn serve(client: Client<'_>, note: impl Fn(&Request<RequestBody>) + 'static) -> Served {
    let Proxy {
        gateway,
        clock,
        spec,
    } = &*PROXY;
    clock.continue_from(clock.now().saturating_add(PAUSE));
    let peer = if client.is_trusted {
        [10, 0, 0, 1]
    } else {
        [192, 0, 2, 1]
    };
    let peer = SocketAddr::from((peer, 1));
    let note = Arc::new(note);
    let factory = move |connection: &_| {
        let (service, note) = (gateway::service(gateway, connection), Arc::clone(&note));
        move |request: Request<RequestBody>| {
            note(&request);
            service.call(request)
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async move {
        let (io, theirs) = duplex(64 * 1024);
        let (_controller, closing) = DrainController::new();
        let serving = in_memory::serve(theirs, peer, *spec, closing, factory);
        let serving = timeout(LONGEST, serving);
        let (end, output) = tokio::join!(serving, talk(client, io));
        let end = end.unwrap_or_else(|_| panic!("the connection does not end"));
        Served { output, end }
    })
}

/// Sends all, and reads to the end.
async fn talk(client: Client<'_>, io: DuplexStream) -> Vec<u8> {
    let (mut reader, mut writer) = split(io);
    let sending = async {
        for piece in client.pieces {
            // It fails once the server has ended the connection.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            // The server reads this piece by itself.
            yield_now().await;
            yield_now().await;
        }
        if !client.stays {
            let _ = writer.shutdown().await;
        }
    };
    let receiving = async {
        let mut output = Vec::new();
        while reader
            .read_buf(&mut output)
            .await
            .is_ok_and(|read| read > 0)
        {
            let got = output.len();
            assert!(
                got <= client.most,
                "{got} bytes, for {} at most",
                client.most
            );
        }
        output
    };
    tokio::join!(sending, receiving).1
}
