//! Origins that speak HTTP/2: whole ones on the `h2` crate, and scripted ones that write frames.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::sync::Notify;

use super::frames::Http2;
use super::origin::Origin;

/// A request that the origin received, as far as it has come.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: Arc<Request<()>>,
    /// The number of its connection, from 1.
    pub connection: usize,
}

/// What origins record.
#[derive(Default)]
struct Record {
    connections: AtomicUsize,
    requests: Mutex<Vec<Seen>>,
    ended: Notify,
}

/// A listening origin on the `h2` crate; it stops on drop.
pub struct Http2Origin {
    address: SocketAddr,
    record: Arc<Record>,
}

/// One request, to be answered.
pub struct Exchange {
    pub head: Arc<Request<()>>,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
}

impl Exchange {
    /// The value of a request field.
    pub fn field(&self, name: &str) -> &str {
        let value = self.head.headers().get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The whole body, and the trailers.
    pub async fn receive(&mut self) -> Option<(Vec<u8>, HeaderMap)> {
        let mut whole = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data.ok()?;
            whole.extend_from_slice(&data);
            self.body.flow_control().release_capacity(data.len()).ok()?;
        }
        Some((whole, self.body.trailers().await.ok()?.unwrap_or_default()))
    }

    /// Sends the head of a 200, whose body follows.
    pub fn begin(&mut self, fields: &[(&'static str, &str)]) -> Option<SendStream<Bytes>> {
        let mut response = Response::new(());
        for (name, value) in fields {
            let value = value.parse().expect("a value");
            response.headers_mut().insert(*name, value);
        }
        self.respond.send_response(response, false).ok()
    }

    /// Sends a 200 with this body and these trailers.
    pub async fn answer(&mut self, body: &[u8], trailers: &[(&'static str, &str)]) -> Option<()> {
        let mut stream = self.begin(&[])?;
        send(&mut stream, body).await?;
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            map.insert(*name, value.parse().expect("a value"));
        }
        if map.is_empty() {
            stream.send_data(Bytes::new(), true).ok()
        } else {
            stream.send_trailers(map).ok()
        }
    }
}

/// Sends `data` as the peer's windows allow.
pub async fn send(stream: &mut SendStream<Bytes>, data: &[u8]) -> Option<()> {
    let mut rest = Bytes::copy_from_slice(data);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx))
            .await?
            .ok()?;
        let part = rest.split_to(room.min(rest.len()));
        stream.send_data(part, false).ok()?;
    }
    Some(())
}

impl Http2Origin {
    /// Answers every request by `handler`, with at most `streams` at once on a connection.
    pub fn start<H, F>(streams: u32, handler: H) -> Self
    where
        H: Fn(Exchange) -> F + Clone + Send + 'static,
        F: Future<Output = Option<()>> + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("a bound socket");
        let record = Arc::new(Record::default());
        let shared = Arc::clone(&record);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let local = tokio::task::LocalSet::new();
            let serving = accept(listener, streams, handler, Arc::clone(&shared));
            local.block_on(&runtime.expect("a runtime"), async {
                tokio::select! {
                    () = serving => {}
                    () = shared.ended.notified() => {}
                }
            });
        });
        Self { address, record }
    }

    /// Answers every request with 200 and `ok`.
    pub fn plain() -> Self {
        Self::start(100, |mut exchange| async move {
            exchange.receive().await?;
            exchange.answer(b"ok", &[]).await
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.record.connections.load(Ordering::Relaxed)
    }

    /// The requests whose head has come.
    pub fn requests(&self) -> Vec<Seen> {
        self.record
            .requests
            .lock()
            .expect("no holder panics")
            .clone()
    }

    /// The only request.
    #[track_caller]
    pub fn only_request(&self) -> Seen {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().expect("there is one")
    }
}

impl Drop for Http2Origin {
    fn drop(&mut self) {
        self.record.ended.notify_one();
    }
}

async fn accept<H, F>(listener: TcpListener, streams: u32, handler: H, record: Arc<Record>)
where
    H: Fn(Exchange) -> F + Clone + 'static,
    F: Future<Output = Option<()>> + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a connected socket");
        let connection = 1 + record.connections.fetch_add(1, Ordering::Relaxed);
        let (handler, record) = (handler.clone(), Arc::clone(&record));
        tokio::task::spawn_local(async move {
            let mut builder = Builder::new();
            builder
                .max_concurrent_streams(streams)
                .enable_connect_protocol();
            let Ok(mut serving) = builder.handshake(stream).await else {
                return;
            };
            while let Some(Ok((request, respond))) = serving.accept().await {
                let (head, body) = request.into_parts();
                let head = Arc::new(Request::from_parts(head, ()));
                let seen = Seen {
                    head: Arc::clone(&head),
                    connection,
                };
                record.requests.lock().expect("no holder panics").push(seen);
                tokio::task::spawn_local(handler(Exchange {
                    head,
                    body,
                    respond,
                }));
            }
        });
    }
}

/// An origin that runs `script` on each connection, after both prefaces. Its SETTINGS are `settings`.
pub fn scripted(
    settings: &'static [u8],
    script: impl Fn(&mut Http2) + Send + Sync + 'static,
) -> Origin {
    Origin::raw(move |stream: TcpStream| {
        if let Some(mut connection) = Http2::accept(stream, settings) {
            script(&mut connection);
        }
    })
}
