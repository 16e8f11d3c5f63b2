//! What is exported: every family with its kind, its labels and its meaning. `docs/metrics.md` lists the same.

use crate::telemetry::registry::{Family, Kind};

macro_rules! families {
    (@is_set) => { false };
    (@is_set hides_zero) => { true };
    ($($name:ident: $kind:ident $($hides_zero:ident)? $full_name:literal $labels:expr, $help:literal;)*) => {
        $(pub(in crate::telemetry) static $name: Family = Family {
            name: $full_name,
            help: $help,
            kind: Kind::$kind,
            labels: &$labels,
            hides_zero: families!(@is_set $($hides_zero)?),
        };)*

        /// All of them.
        #[cfg(test)]
        pub(super) static ALL: &[&Family] = &[$(&$name),*];
    };
}

families! {
    HTTP_REQUESTS: Counter "sluicegate_http_requests_total" ["code", "method"],
        "Requests answered.";
    HTTP_DURATION: Histogram hides_zero "sluicegate_http_request_duration_seconds" ["route"],
        "Time from a request's head to the end of its response.";
    HTTP_PANICS: Counter "sluicegate_http_request_panics_total" [],
        "Requests that ended by a panic of the proxy, answered 500 unless the response had begun. Any is a bug: the log says where it is.";
    ROUTE_REQUESTS: Counter hides_zero "sluicegate_route_requests_total" ["route", "class"],
        "Requests answered by route and status class.";
    UPSTREAM_DURATION: Histogram "sluicegate_upstream_request_duration_seconds" ["upstream"],
        "Time from forwarding a request to the head of the upstream's response.";
    ENDPOINT_REQUESTS: Counter "sluicegate_upstream_requests_total" ["upstream", "endpoint"],
        "Requests sent to an endpoint, those included that it could not be connected for.";
    ENDPOINT_FAILURES: Counter hides_zero "sluicegate_upstream_failures_total" ["upstream", "endpoint", "reason"],
        "Requests that an endpoint did not answer, or not to the end.";
    ENDPOINT_CONNECTIONS: Gauge "sluicegate_upstream_connections" ["upstream", "endpoint"],
        "Open connections to an endpoint, idle ones included.";
    LIMIT_DECISIONS: Counter hides_zero "sluicegate_limit_decisions_total" ["policy", "route", "decision"],
        "What policies decided.";
    LIMIT_NEAR: Counter "sluicegate_limit_near_total" ["policy"],
        "Requests admitted with at least 80 % of the quota used.";
    LIMIT_SETTLEMENTS: Counter "sluicegate_limit_settlements_total" ["policy", "result"],
        "Costs that a response is to settle: `settled`, or the estimate stands because the response states none (`missing`) or no number (`malformed`), or did not come or broke off (`no_response`).";
    LIMIT_BUCKETS: Gauge "sluicegate_limit_buckets" ["policy"],
        "Buckets in use, estimated.";
    LIMIT_EVICTIONS: Counter "sluicegate_limit_evictions_total" ["policy"],
        "Buckets forgotten because the table was full.";
    LIMIT_UNRECORDED: Counter "sluicegate_limit_unrecorded_total" ["policy"],
        "Requests admitted without a bucket because all places were held by refusing keys.";
    LIMIT_TRACKING_EVICTIONS: Counter "sluicegate_limit_tracking_evictions_total" ["policy", "what"],
        "Keys of which `strikes`, `bans`, `refusals` (remembered ones of Redis) or `sync` totals were forgotten for want of room.";
    LIMIT_BANS: Counter "sluicegate_limit_bans_total" ["policy"],
        "Keys banned for too many refusals, each time they were; where machines share bans, on the one that brought it about, or on each if several did at once.";
    LIMIT_IN_USE: Gauge "sluicegate_limit_in_use" ["policy"],
        "Units that requests in flight have taken, of policies with `algorithm: concurrency`.";
    LIMIT_HELD: Gauge "sluicegate_limit_held" ["policy"],
        "Requests held by a tarpit.";
    JWT_TOKENS: Counter "sluicegate_jwt_total" ["result"],
        "Requests whose token a limit asked for a claim: `verified`, `several` different ones, or why it was rejected.";
    JWT_SIGNATURES: Counter "sluicegate_jwt_signatures_total" [],
        "Signatures of tokens checked; none for tokens that are remembered.";
    SNAPSHOTS: Counter "sluicegate_snapshots_total" ["result"],
        "Snapshots of buckets tried.";
    SNAPSHOT_LAST_SUCCESS: Gauge "sluicegate_snapshot_last_success_timestamp_seconds" [],
        "When buckets were last saved, in seconds since the Unix epoch.";
    STORE_REQUESTS: Counter "sluicegate_store_requests_total" ["op", "result"],
        "Requests to the shared store by what came of them.";
    STORE_LOST: Counter "sluicegate_store_lost_total" ["what"],
        "What the shared store could not be told after requests: `settlement`, `place`, `permit` or `renewal`.";
    STORE_UP: Gauge "sluicegate_store_up" [],
        "1 if the shared store answers, else 0.";
    STORE_DURATION: Histogram "sluicegate_store_duration_seconds" [],
        "Time from sending a call to the shared store to its answer, or to giving up.";
    SYNC_ROUNDS: Counter "sluicegate_sync_rounds_total" ["result"],
        "Rounds by which buckets in memory are synchronised through the shared store.";
    SYNC_DURATION: Histogram "sluicegate_sync_round_duration_seconds" [],
        "Time that such a round took.";
    SYNC_KEYS: Gauge "sluicegate_sync_keys" ["policy"],
        "Keys whose charges are told to other machines.";
    SYNC_UNTRACKED: Counter "sluicegate_sync_untracked_total" ["policy"],
        "Charges of which other machines were not told, as the table had no room for their bucket.";
    LIMIT_WAITING: Gauge "sluicegate_limit_waiting" ["policy"],
        "Requests that wait their turn.";
    LIMIT_WAIT: Histogram "sluicegate_limit_wait_seconds" ["policy"],
        "Time for which admitted requests have to wait their turn.";
    CONFIG_RELOADS: Counter "sluicegate_config_reloads_total" ["result"],
        "Reloads tried.";
    CONFIG_LAST_SUCCESSFUL: Gauge "sluicegate_config_last_reload_successful" [],
        "1 if the last reload took effect, else 0.";
    CONFIG_LAST_SUCCESS: Gauge "sluicegate_config_last_reload_success_timestamp_seconds" [],
        "When the running configuration took effect, in seconds since the Unix epoch.";
    CONFIG_INFO: Gauge "sluicegate_config_info" ["hash"],
        "The running configuration.";
    CONNECTIONS: Gauge "sluicegate_connections" ["listener"],
        "Client connections being served.";
    ACCEPT_ERRORS: Counter "sluicegate_accept_errors_total" ["listener"],
        "Connections that could not be accepted, and handshakes that failed.";
    BAD_REQUESTS: Counter "sluicegate_bad_requests_total" ["listener", "reason"],
        "Requests that no route saw: in HTTP/1 answered 400 or 505 (malformed), 431 or 414 (head_too_large) or 408 (timeout); in HTTP/2 header blocks that did not end in time (timeout).";
    ACCESS_LOG_DROPPED: Counter "sluicegate_access_log_dropped_lines_total" [],
        "Access log lines lost because the queue was full or the file could not be written.";
    LOG_DROPPED: Counter "sluicegate_log_dropped_lines_total" [],
        "Lines of the process's own log lost because the queue was full or stderr could not be written.";
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
