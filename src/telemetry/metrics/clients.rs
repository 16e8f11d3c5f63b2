//! Clients by their keys: how many there are, and what became of the keys of requests.

use crate::telemetry::registry::{Counters, Gauge, handle_set, label_values};

label_values! {
    /// The result of looking for the client of a request: the `result` label.
    #[derive(strum::EnumString)]
    ClientResult {
        /// Its key is that of a client.
        Known,
        /// It has no key.
        NoKey,
        /// No client has its key.
        Unknown,
        /// It has different keys.
        Several,
    }
}

handle_set! {
    /// The gauge and the counters of clients.
    ClientMetrics() {
        /// The clients.
        pub clients: Gauge = gauge("sluicegate_clients"),
        /// Requests by what became of their keys.
        pub lookups: Counters<ClientResult> = counters("sluicegate_client_lookups_total"),
    }
}
