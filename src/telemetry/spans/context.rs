//! The Traceparent field (W3C Trace Context, section 3.2): which trace a request belongs to.

use aws_lc_rs::rand;
use derive_more::Display;

/// The length of a field of version 00.
const LENGTH: usize = 55;

/// The identity of a trace; never 0.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
#[display("{_0:032x}")]
pub struct TraceId(pub u128);

/// The identity of a span; never 0.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
#[display("{_0:016x}")]
pub struct SpanId(pub u64);

/// The trace of a request, as its caller or this proxy says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span of the sender.
    pub span: SpanId,
    /// The sender records its spans.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context of a field; `None` if it is not valid.
    pub fn parse(field: &[u8]) -> Option<Self> {
        let (known, later) = field.split_at_checked(LENGTH)?;
        let is_version_0 = known.starts_with(b"00-");
        let has_dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        let ends_well = later.is_empty() || (!is_version_0 && later.starts_with(b"-"));
        if !has_dashes || !ends_well || known.starts_with(b"ff") {
            return None;
        }
        let _version = hex(&known[..2])?;
        let (trace, span) = (hex(&known[3..35])?, hex(&known[36..52])? as u64);
        let flags = hex(&known[53..])?;
        let is_valid = trace != 0 && span != 0;
        is_valid.then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & 1 == 1,
        })
    }

    /// The value of a field of version 00.
    pub fn to_field(self) -> String {
        let Self { trace, span, .. } = self;
        let flags = u8::from(self.is_sampled);
        format!("00-{trace}-{span}-{flags:02x}")
    }
}

impl TraceId {
    /// A new trace.
    pub fn random() -> Self {
        Self(u128::from_be_bytes(random()).max(1))
    }
}

impl SpanId {
    /// A new span.
    pub fn random() -> Self {
        Self(u64::from_be_bytes(random()).max(1))
    }
}

/// Random bytes.
fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    // Without randomness of the system the identity is a constant: spans are no secrets.
    let _ = rand::fill(&mut bytes);
    bytes
}

/// True for a random `percent` of calls.
pub fn is_chosen(percent: u32) -> bool {
    match percent {
        0 => false,
        100.. => true,
        percent => {
            let drawn = (u64::from(u32::from_be_bytes(random())) * 100) >> 32;
            drawn < u64::from(percent)
        }
    }
}

/// The number that lower-case hexadecimal digits write.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_valid_field_has_a_trace_a_span_and_a_flag() {
        let of = |field: &str| TraceContext::parse(field.as_bytes());
        let with = |before: &str, after: &str| format!("{before}{ID}{after}");
        let plain = with("00-", "-00f067aa0ba902b7-01");
        let context = of(&plain).expect("a context");
        assert_eq!(context.trace.to_string(), ID);
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled);
        assert_eq!(context.to_field(), plain);
        let later = of(&with("cc-", "-00f067aa0ba902b7-02-what")).expect("a context");
        assert!(!later.is_sampled);
        assert_eq!(later.to_field(), with("00-", "-00f067aa0ba902b7-00"));
        for wrong in [
            with("00-", "-00f067aa0ba902b7-01-what"),
            with("ff-", "-00f067aa0ba902b7-01"),
            with("0g-", "-00f067aa0ba902b7-01"),
            with("00-", "-00f067aa0ba902b7-0"),
            with("00_", "-00f067aa0ba902b7-01"),
            with("00-", "-00F067AA0BA902B7-01"),
            with("00-", "-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            String::new(),
        ] {
            assert_eq!(of(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_percentage_of_requests_is_chosen() {
        assert!((0..1_000).all(|_| is_chosen(100) && !is_chosen(0)));
        // Ten standard deviations.
        let chosen = (0..10_000).filter(|_| is_chosen(20)).count();
        assert!((1_600..=2_400).contains(&chosen), "{chosen}");
    }
}
