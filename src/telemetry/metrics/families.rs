//! Every exported family with its kind, its labels and its meaning. `docs/metrics.md` lists the
//! same.

use crate::telemetry::registry::{Family, Kind, Scale};

macro_rules! families {
    (@scale) => { Scale::Small };
    (@scale large) => { Scale::Large };
    ($($name:ident: $kind:ident $($scale:ident)? $full_name:literal $labels:expr, $help:literal;)*) => {
        $(pub(in crate::telemetry) static $name: Family = Family {
            name: $full_name,
            help: $help,
            kind: Kind::$kind,
            labels: &$labels,
            scale: families!(@scale $($scale)?),
        };)*

        /// All of them.
        #[cfg(test)]
        pub(super) static ALL: &[&Family] = &[$(&$name),*];
    };
}

families! {
    HTTP_REQUESTS: Counter "sluicegate_http_requests_total" ["code", "method"],
        "Requests answered.";
    HTTP_DURATION: Histogram large "sluicegate_http_request_duration_seconds" ["route"],
        "Time from a request's head to the end of its response.";
    HTTP_PANICS: Counter "sluicegate_http_request_panics_total" [],
        "Requests that ended by a panic of the proxy. Each is a bug: the log says where.";
    ROUTE_REQUESTS: Counter large "sluicegate_route_requests_total" ["route", "class"],
        "Requests answered by route and status class.";
    ACCESS_DENIED: Counter "sluicegate_access_denied_total" ["route"],
        "Requests that `access` denied, and no limit refused before.";
    UPSTREAM_DURATION: Histogram "sluicegate_upstream_request_duration_seconds" ["upstream"],
        "Time from forwarding a request to the head of the upstream's response.";
    UPSTREAM_RESPONSES: Counter "sluicegate_upstream_responses_total" ["upstream", "class"],
        "Requests forwarded to an upstream, by the status class of its response; `none` if it gave none.";
    UPSTREAM_PENDING: Gauge "sluicegate_upstream_pending" ["upstream"],
        "Requests that wait because each address has `connections.max` in flight.";
    UPSTREAM_PENDING_WAIT: Histogram large "sluicegate_upstream_pending_seconds" ["upstream"],
        "Time that requests waited for an address with less than `connections.max` in flight.";
    UPSTREAM_PENDING_REFUSED: Counter large "sluicegate_upstream_pending_refused_total" ["upstream", "reason"],
        "Requests that `connections.max` kept from an upstream: too many waited (`full`), or the time to wait (`timeout`) or for the whole request (`deadline`) was over.";
    UPSTREAM_REFUSED: Counter large "sluicegate_upstream_refused_total" ["upstream", "reason"],
        "Requests answered 503 because too many are in flight: of the client (`client_share`), at the upstream (`upstream_share`) or in all (`total`), or because the machine has no file, memory or port left (`shortage`).";
    ENDPOINT_REQUESTS: Counter "sluicegate_upstream_requests_total" ["upstream", "endpoint"],
        "Requests sent to an endpoint, including those without a connection.";
    ENDPOINT_FAILURES: Counter large "sluicegate_upstream_failures_total" ["upstream", "endpoint", "reason"],
        "Requests that an endpoint did not answer, or not to the end.";
    ENDPOINT_CONNECTIONS: Gauge "sluicegate_upstream_connections" ["upstream", "endpoint"],
        "Open connections to an endpoint, including idle ones.";
    ENDPOINT_HOSTS: Gauge "sluicegate_upstream_hosts" ["upstream", "endpoint"],
        "Addresses of an endpoint that requests are shared among.";
    ENDPOINT_AVAILABLE: Gauge "sluicegate_upstream_hosts_available" ["upstream", "endpoint"],
        "Addresses of an endpoint that work: in use, and answering well since their last failures.";
    ENDPOINT_DRAINING: Gauge "sluicegate_upstream_endpoint_draining" ["upstream", "endpoint"],
        "1 while an endpoint gets no new requests because an operator drains it, else 0.";
    ENDPOINT_EJECTIONS: Counter large "sluicegate_upstream_ejections_total" ["upstream", "endpoint", "reason"],
        "Times that an address of an endpoint was ejected for its failures.";
    ENDPOINT_HEALTH_CHECKS: Counter large "sluicegate_upstream_health_checks_total" ["upstream", "endpoint", "result"],
        "Health checks of the addresses of an endpoint.";
    ENDPOINT_RETRIES: Counter large "sluicegate_upstream_retries_total" ["upstream", "endpoint", "reason"],
        "Requests that failed at an endpoint and were sent to another address.";
    ENDPOINT_RETRIES_DENIED: Counter large "sluicegate_upstream_retries_denied_total" ["upstream", "endpoint"],
        "Requests that failed at an endpoint and were not retried because the retry budget was spent.";
    ENDPOINT_LOOKUP_FAILURES: Counter large "sluicegate_upstream_lookup_failures_total" ["upstream", "endpoint"],
        "Lookups of an endpoint's name that failed or found no usable address.";
    POLICY_INFO: Gauge "sluicegate_policy_info" ["policy", "algorithm", "quota", "key", "store"],
        "The settings of a policy.";
    LIMIT_DECISIONS: Counter large "sluicegate_limit_decisions_total" ["policy", "route", "decision"],
        "Decisions of policies.";
    LIMIT_NEAR: Counter "sluicegate_limit_near_total" ["policy"],
        "Requests allowed with at least 80 % of the quota used.";
    LIMIT_SETTLEMENTS: Counter "sluicegate_limit_settlements_total" ["policy", "result"],
        "Costs that a response should settle: `settled`, or the estimate stands because the response states no cost (`missing`) or no number (`malformed`), or is missing or incomplete (`no_response`).";
    LIMIT_BUCKETS: Gauge "sluicegate_limit_buckets" ["policy"],
        "Buckets in use, estimated.";
    LIMIT_EVICTIONS: Counter "sluicegate_limit_evictions_total" ["policy"],
        "Buckets evicted because the table was full.";
    LIMIT_UNRECORDED: Counter "sluicegate_limit_unrecorded_total" ["policy"],
        "Requests allowed without a bucket because keys that refuse held all places.";
    LIMIT_TRACKING_EVICTIONS: Counter "sluicegate_limit_tracking_evictions_total" ["policy", "what"],
        "Keys whose `strikes`, `bans`, `refusals` (cached from Redis) or `sync` totals were evicted because their table was full.";
    LIMIT_BANS: Counter "sluicegate_limit_bans_total" ["policy"],
        "Bans of keys for too many refusals, counted on the machine where they began.";
    LIMIT_BANNED_KEYS: Gauge "sluicegate_limit_banned_keys" ["policy", "by"],
        "Keys that are banned now, by a `penalty` or an `operator`.";
    LIMIT_OPERATIONS: Counter large "sluicegate_limit_operations_total" ["policy", "action"],
        "Changes to keys by operators of this machine.";
    LIMIT_GRANTED: Counter large "sluicegate_limit_granted_total" ["policy"],
        "Requests allowed by units that an operator granted, because the quota was used.";
    LIMIT_GRANTED_KEYS: Gauge "sluicegate_limit_granted_keys" ["policy"],
        "Keys that have a grant now, spent or not.";
    LIMIT_IN_USE: Gauge "sluicegate_limit_in_use" ["policy"],
        "Permits of a `concurrency` policy that requests in flight hold.";
    LIMIT_HELD: Gauge "sluicegate_limit_held" ["policy"],
        "Requests that a tarpit holds, and decoys that wait as long as real answers take.";
    JWT_TOKENS: Counter "sluicegate_jwt_total" ["result"],
        "Requests whose token a limit read: `verified`, `several` different tokens, or the reason of the rejection.";
    JWT_SIGNATURES: Counter "sluicegate_jwt_signatures_total" [],
        "Signatures of tokens checked. Cached tokens need no check.";
    CLOCK_STEPS: Counter "sluicegate_clock_steps_total" ["direction"],
        "Steps of the wall clock by more than a second.";
    CLOCK_LEAD: Gauge "sluicegate_clock_lead_seconds" [],
        "How far the wall clock is ahead of the clock of limits; negative if behind.";
    SNAPSHOTS: Counter "sluicegate_snapshots_total" ["result"],
        "Attempts to save a snapshot of the buckets.";
    SNAPSHOT_LAST_SUCCESS: Gauge "sluicegate_snapshot_last_success_timestamp_seconds" [],
        "When buckets were last saved, in seconds since the Unix epoch.";
    SNAPSHOT_UNREAD: Gauge "sluicegate_snapshot_unread" [],
        "1 while there is a snapshot that could not be read, as it was or set aside.";
    STORE_REQUESTS: Counter "sluicegate_store_requests_total" ["op", "result"],
        "Requests to the shared store by operation and result.";
    STORE_LOST: Counter "sluicegate_store_lost_total" ["what"],
        "Reports to the shared store that were lost, by what they report.";
    STORE_UP: Gauge "sluicegate_store_up" [],
        "1 if the shared store answers, else 0.";
    STORE_DURATION: Histogram "sluicegate_store_duration_seconds" [],
        "Time from sending a call to the shared store to its answer or its time-out.";
    SYNC_ROUNDS: Counter "sluicegate_sync_rounds_total" ["result"],
        "Rounds that synchronise buckets in memory through the shared store.";
    SYNC_DURATION: Histogram "sluicegate_sync_round_duration_seconds" [],
        "Time that a round of synchronising takes.";
    SYNC_KEYS: Gauge "sluicegate_sync_keys" ["policy"],
        "Keys whose charges are reported to other machines.";
    SYNC_UNTRACKED: Counter "sluicegate_sync_untracked_total" ["policy"],
        "Charges not reported to other machines because the table had no room for their bucket.";
    LIMIT_WAITING: Gauge "sluicegate_limit_waiting" ["policy"],
        "Requests that limits delay at present.";
    LIMIT_WAIT: Histogram "sluicegate_limit_wait_seconds" ["policy"],
        "Time that limits delay allowed requests.";
    CONFIG_RELOADS: Counter "sluicegate_config_reloads_total" ["result"],
        "Attempts to reload the configuration.";
    CONFIG_LAST_SUCCESSFUL: Gauge "sluicegate_config_last_reload_successful" [],
        "1 if the last reload took effect, else 0.";
    CONFIG_LAST_SUCCESS: Gauge "sluicegate_config_last_reload_success_timestamp_seconds" [],
        "When the running configuration took effect, in seconds since the Unix epoch.";
    CONFIG_INFO: Gauge "sluicegate_config_info" ["hash"],
        "The running configuration.";
    CERTIFICATE_NOT_BEFORE: Gauge "sluicegate_certificate_not_before_seconds" ["file"],
        "When the certificates of a file begin to be valid, in seconds since the Unix epoch: the last of a listener's chain, or the first that servers are verified against.";
    CERTIFICATE_NOT_AFTER: Gauge "sluicegate_certificate_not_after_seconds" ["file"],
        "When the certificates of a file end, in seconds since the Unix epoch: the first of a listener's chain, or the last that servers are verified against.";
    CONNECTIONS: Gauge "sluicegate_connections" ["listener"],
        "Client connections being served.";
    ACCEPT_ERRORS: Counter "sluicegate_accept_errors_total" ["listener"],
        "Connections that could not be accepted, and handshakes that failed.";
    REFUSED_CONNECTIONS: Counter "sluicegate_connections_refused_total" ["listener", "reason"],
        "Connections closed at once: beyond `client.max_connections_per_client` (max_per_client), or without a valid header of the PROXY protocol (bad_preamble).";
    EVICTED_CONNECTIONS: Counter "sluicegate_connections_evicted_total" ["listener"],
        "Idle connections closed for a new one, near `client.max_connections`.";
    CONNECTION_PRESSURE: Gauge "sluicegate_connection_pressure_ratio" [],
        "The share of client connections, or of requests in flight at upstreams, that is in use, whichever is larger. 1 for a minute after the machine had no file, memory or port left.";
    BAD_REQUESTS: Counter "sluicegate_bad_requests_total" ["listener", "reason"],
        "Requests that no route saw: answered 400 or 505 (malformed), 431 or 414 (head_too_large) or 408 (timeout), or HTTP/2 connections closed for slow header blocks (timeout) or too many frames (flood).";
    ADMIN_REFUSED: Counter "sluicegate_admin_requests_refused_total" ["reason"],
        "Requests to the admin listener that were refused: without a known token (unauthenticated), after too many wrong ones (throttled), without a token of `write` (forbidden), from a page of another origin (cross_origin), or for another host (unknown_host).";
    ADMIN_STREAM_READERS: Gauge "sluicegate_admin_stream_readers" ["stream"],
        "Callers that read `/v1/live` (live) or `/v1/events` (events) now.";
    ACCESS_LOG_DROPPED: Counter "sluicegate_access_log_dropped_lines_total" [],
        "Access log lines lost because the queue was full or the file could not be written.";
    LOG_DROPPED: Counter "sluicegate_log_dropped_lines_total" [],
        "Lines of the process's own log lost because the queue was full or stderr could not be written.";
    SPANS_EXPORTED: Counter "sluicegate_trace_spans_exported_total" [],
        "Spans that the collector has taken.";
    SPANS_DROPPED: Counter "sluicegate_trace_spans_dropped_total" ["reason"],
        "Spans lost because the queue was full (`queue_full`), or the collector did not answer in time (`unreachable`) or refused them (`refused`).";
    BUILD_INFO: Gauge "sluicegate_build_info" ["version", "revision"],
        "The running program.";
    PROCESS_CPU: Counter "process_cpu_seconds_total" [],
        "User and system time spent, in seconds.";
    PROCESS_RESIDENT: Gauge "process_resident_memory_bytes" [],
        "Memory held, in bytes.";
    PROCESS_OPEN_FDS: Gauge "process_open_fds" [],
        "Open file descriptors.";
    PROCESS_MAX_FDS: Gauge "process_max_fds" [],
        "File descriptors allowed.";
    PROCESS_THREADS: Gauge "process_threads" [],
        "Threads.";
    PROCESS_START: Gauge "process_start_time_seconds" [],
        "When the process started, in seconds since the Unix epoch.";
}
