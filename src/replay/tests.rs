//! Requests on virtual time.

mod policies;
