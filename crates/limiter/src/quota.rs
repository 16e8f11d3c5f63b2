//! A quota: a number of units in a window.

use std::time::Duration;

/// A number of units in each window, whose length is in microseconds.
///
/// A limit of 0 refuses every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u32,
    window: u64,
}

/// The reason why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The window is empty, or has a fraction of a microsecond.
    #[error("a window must be a whole number of microseconds, at least one")]
    WindowTooFine,
    /// The window is longer than [`Quota::MAX_WINDOW`].
    #[error("a window must not be longer than 2^52 microseconds (about 142 years)")]
    WindowTooLong,
    /// A burst of 0 would never admit anything.
    #[error("a burst must be at least 1 unit; a quota of 0 is what refuses always")]
    BurstZero,
    /// A log would need too much memory.
    #[error("a log has at most 100000 units; count them in parts: `algorithm: sliding_window`")]
    LogTooLong,
    /// The window cannot be cut into that many equal parts.
    #[error("a window is cut in 1 to 3600 equal parts of whole microseconds")]
    Parts,
    /// A bucket that is never refilled.
    #[error("a refill must be at least 1 unit")]
    RefillZero,
    /// A spent burst would take longer than [`Quota::MAX_WINDOW`] to recover.
    #[error("a burst must recover within 2^52 microseconds (about 142 years) at its quota's rate")]
    BurstTooLong,
}

impl Quota {
    /// The longest window, 2^52 microseconds: an instant plus a window stays below 2^53, up to
    /// which Redis scripts are exact as well.
    pub const MAX_WINDOW: Duration = Duration::from_micros(1 << 52);

    /// A quota of `limit` units in each `window`.
    ///
    /// # Errors
    /// When the window is empty, has a fraction of a microsecond, or exceeds [`Quota::MAX_WINDOW`].
    pub fn new(limit: u32, window: Duration) -> Result<Self, QuotaError> {
        if window > Self::MAX_WINDOW {
            return Err(QuotaError::WindowTooLong);
        }
        let micros = window.as_micros() as u64;
        if micros == 0 || Duration::from_micros(micros) != window {
            return Err(QuotaError::WindowTooFine);
        }
        Ok(Self {
            limit,
            window: micros,
        })
    }

    /// So many units in the same window.
    #[must_use]
    pub const fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// Units in a window.
    pub const fn limit(self) -> u32 {
        self.limit
    }

    /// The window's length.
    pub const fn window(self) -> Duration {
        Duration::from_micros(self.window)
    }

    /// The window's length in microseconds.
    pub const fn window_micros(self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_microseconds_within_bounds() {
        let new = |window| Quota::new(1, window).map(Quota::window_micros);
        assert_eq!(new(Duration::ZERO), Err(QuotaError::WindowTooFine));
        assert_eq!(
            new(Duration::from_nanos(1_500)),
            Err(QuotaError::WindowTooFine)
        );
        assert_eq!(new(Duration::from_micros(1)), Ok(1));
        assert_eq!(new(Quota::MAX_WINDOW), Ok(1 << 52));
        let longer = Quota::MAX_WINDOW + Duration::from_nanos(1);
        assert_eq!(new(longer), Err(QuotaError::WindowTooLong));
    }
}
