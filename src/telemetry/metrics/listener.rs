//! Listeners: the connections of clients, and what is wrong with them.

use crate::telemetry::registry::{Counter, Counters, Gauge, handle_set, label_values};

handle_set! {
    /// One listener's connections.
    ListenerMetrics(listener) {
        /// Open connections.
        pub open: Gauge = gauge("sluicegate_connections"),
        /// Connections that could not be accepted, or whose handshake failed.
        pub accept_errors: Counter = counter("sluicegate_accept_errors_total"),
        /// Idle connections that gave way to new ones.
        pub evicted: Counter = counter("sluicegate_connections_evicted_total"),
        /// Connections that were closed before their first request.
        pub refused: Counters<ConnectionRefusal> = counters("sluicegate_connections_refused_total"),
        /// Requests that were answered before they reached a route.
        pub bad_requests: Counters<BadRequest> = counters("sluicegate_bad_requests_total"),
    }
}

label_values! {
    /// Why a connection was refused, as the `reason` label says it.
    ConnectionRefusal {
        /// Its client has as many as it may.
        MaxPerClient,
        /// It does not begin with the header of the PROXY protocol that it needs.
        BadPreamble,
    }
}

label_values! {
    /// Why a request reached no route, as the `reason` label says it.
    BadRequest {
        /// Its head is not HTTP/1.
        Malformed,
        /// Its head is larger than allowed.
        HeadTooLarge,
        /// Its head did not arrive in time.
        Timeout,
        /// Its connection is flooded with frames of HTTP/2.
        Flood,
    }
}
