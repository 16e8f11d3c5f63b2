//! Validity periods of the certificates in PEM files (RFC 5280 section 4.1.2.5).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};

/// Seconds before its end from which on a certificate is reported: 30 days.
const NOTICE: u64 = 30 * 86_400;

/// Seconds before its end from which on a certificate is a problem of a running process: less than
/// 21 days.
const URGENT: u64 = 21 * 86_400 - 1;

/// The first and the last second in which certificates are valid, since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first.
    pub not_before: u64,
    /// The last.
    pub not_after: u64,
}

/// A period that does not hold now, or not for long, worst first. Seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lapse {
    /// Since this second.
    Expired(u64),
    /// Until this second.
    NotYetValid(u64),
    /// In this second, within 30 days.
    ExpiresSoon(u64),
}

/// A PEM file whose certificates are not valid, or not for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiryWarning {
    lapse: Lapse,
    subject: Subject,
}

/// The certificate of a file that a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The server's own.
    Own,
    /// An intermediate one, counted from 1 with the server's own.
    Intermediate { position: usize, count: usize },
    /// The trusted certificate that is valid for longest, or that becomes valid first.
    Trusted { count: usize },
}

/// When the certificates in a PEM file are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePeriod {
    /// The file.
    pub path: PathBuf,
    /// When they are valid.
    pub validity: Validity,
}

impl CertificatePeriod {
    /// The period of a chain as a server presents it, in which all its certificates are valid.
    pub fn of_chain(pem: &[u8], _now: UnixTime) -> Option<Validity> {
        periods(pem).into_iter().reduce(|all, one| Validity {
            not_before: all.not_before.max(one.not_before),
            not_after: all.not_after.min(one.not_after),
        })
    }

    /// The period around `now` in which one of the certificates that servers are verified against
    /// is valid at any time; else the next such period, or the last.
    pub fn of_trusted(pem: &[u8], now: UnixTime) -> Option<Validity> {
        let mut periods = periods(pem);
        periods.sort_by_key(|period| period.not_before);
        let mut joined = Vec::<Validity>::new();
        for period in periods {
            match joined.last_mut() {
                Some(last) if period.not_before <= last.not_after.saturating_add(1) => {
                    last.not_after = last.not_after.max(period.not_after);
                }
                _ => joined.push(period),
            }
        }
        let mut to_come = joined
            .iter()
            .filter(|period| now.as_secs() <= period.not_after);
        to_come.next().or(joined.last()).copied()
    }

    /// Returns true within the period.
    pub fn is_valid(&self, now: u64) -> bool {
        matches!(
            self.validity.lapse(now, 0),
            None | Some(Lapse::ExpiresSoon(_))
        )
    }

    /// Describes the period if it is over, less than three weeks from its end, or yet to begin.
    pub fn problem(&self, now: u64) -> Option<String> {
        let lapse = self.validity.lapse(now, URGENT)?;
        Some(format!(
            "the certificate in {} {lapse}",
            self.path.display()
        ))
    }
}

fn periods(pem: &[u8]) -> Vec<Validity> {
    certificates(pem)
        .iter()
        .filter_map(Validity::read)
        .collect()
}

impl ExpiryWarning {
    /// Checks a chain as a server presents it: every certificate has to be valid.
    pub fn of_chain(pem: &[u8], now: UnixTime) -> Option<Self> {
        let chain = certificates(pem);
        let lapses = chain.iter().enumerate().filter_map(|(index, der)| {
            let lapse = Validity::read(der)?.lapse(now.as_secs(), NOTICE)?;
            Some((lapse, index))
        });
        let (lapse, index) = lapses.min()?;
        let subject = match index {
            0 => Subject::Own,
            index => Subject::Intermediate {
                position: index + 1,
                count: chain.len(),
            },
        };
        Some(Self { lapse, subject })
    }

    /// Checks certificates that servers are verified against: one has to be valid.
    pub fn of_trusted(pem: &[u8], now: UnixTime) -> Option<Self> {
        let period = CertificatePeriod::of_trusted(pem, now)?;
        let lapse = period.lapse(now.as_secs(), NOTICE)?;
        let count = periods(pem).len();
        let subject = Subject::Trusted { count };
        Some(Self { lapse, subject })
    }

    /// Returns true unless the certificates are still valid.
    pub fn is_invalid(&self) -> bool {
        !matches!(self.lapse, Lapse::ExpiresSoon(_))
    }

    /// Describes the certificate in the file at `path`, the end of its validity, and the
    /// consequence.
    pub fn describe(&self, path: &Path) -> String {
        let (lapse, path) = (self.lapse, path.display());
        let until = match lapse {
            Lapse::Expired(_) => "",
            Lapse::NotYetValid(_) => " until then",
            Lapse::ExpiresSoon(_) => " from then on",
        };
        match self.subject {
            Subject::Own => format!("the certificate in {path} {lapse}: clients refuse it{until}"),
            Subject::Intermediate { position, count } => format!(
                "certificate {position} of {count} in {path}, an intermediate one, {lapse}: \
                 clients may refuse the chain{until}"
            ),
            Subject::Trusted { count: 1 } => {
                format!("the certificate in {path}, which servers are verified against, {lapse}")
            }
            Subject::Trusted { count } => {
                let which = match lapse {
                    Lapse::NotYetValid(_) => "is valid first",
                    _ => "is valid for longest",
                };
                format!("of the {count} certificates in {path} the one that {which} {lapse}")
            }
        }
    }

    /// Advice for operators.
    pub fn advice(&self) -> &'static str {
        match (self.lapse, self.subject) {
            (Lapse::NotYetValid(_), _) => {
                "use the previous certificate until then, or correct the clock of this machine"
            }
            (_, Subject::Own) => "renew it, and replace the file: a running proxy reads it again",
            (_, Subject::Intermediate { .. }) => {
                "replace it with the intermediate certificate that the authority uses now"
            }
            (_, Subject::Trusted { .. }) => {
                "add the certificate that the authority, or the server, uses now"
            }
        }
    }
}

/// Reads the certificates of a PEM file; none of a file that is damaged, which is an error elsewhere.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let found = crate::pem::certificates(pem).unwrap_or_default();
    found.into_iter().map(|(_, one)| one).collect()
}

impl Validity {
    /// Reads the period of a certificate; `None` if it cannot be parsed, or ends before it begins.
    ///
    /// Verification checks the period first, and reports the bound that an instant is beyond.
    fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let verified_at = |seconds| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let usage = webpki::KeyUsage::server_auth();
            certificate.verify_for_usage(&[], &[], &[], now, usage, None, None)
        };
        let not_before = match verified_at(0).err()? {
            webpki::Error::CertNotValidYet { not_before, .. } => not_before.as_secs(),
            _ => 0,
        };
        match verified_at(u64::MAX).err()? {
            webpki::Error::CertExpired { not_after, .. } => Some(Self {
                not_before,
                not_after: not_after.as_secs(),
            }),
            _ => None,
        }
    }

    /// The reason for a report, from `notice` seconds before the end on.
    fn lapse(&self, now: u64, notice: u64) -> Option<Lapse> {
        if now > self.not_after {
            Some(Lapse::Expired(self.not_after))
        } else if now < self.not_before {
            Some(Lapse::NotYetValid(self.not_before))
        } else if self.not_after - now <= notice {
            Some(Lapse::ExpiresSoon(self.not_after))
        } else {
            None
        }
    }
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, second) = match *self {
            Self::Expired(second) => ("expired on", second),
            Self::NotYetValid(second) => ("is not valid before", second),
            Self::ExpiresSoon(second) => ("expires on", second),
        };
        let second = i64::try_from(second).ok();
        let date = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
        let date = date.unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{verb} {}", date.strftime("%Y-%m-%d %H:%M UTC"))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    type Day = (i32, u8, u8);

    /// A PEM block for each period.
    fn pem(periods: &[(Day, Day)]) -> String {
        let certificate = |(from, to): &(Day, Day)| {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(["a.test".to_owned()]).expect("a name");
            params.not_before = date_time_ymd(from.0, from.1, from.2);
            params.not_after = date_time_ymd(to.0, to.1, to.2);
            params.self_signed(&key).expect("signs").pem()
        };
        periods.iter().map(certificate).collect()
    }

    /// A second after the start of this day in 2026, or before.
    fn at(month: i8, day: i8, second: i64) -> UnixTime {
        let date = jiff::civil::date(2026, month, day);
        let start = date.to_zoned(jiff::tz::TimeZone::UTC).expect("a day");
        let second = u64::try_from(start.timestamp().as_second() + second).expect("after 1970");
        UnixTime::since_unix_epoch(Duration::from_secs(second))
    }

    fn said(warning: Option<ExpiryWarning>) -> String {
        warning.map_or_else(String::new, |one| one.describe(Path::new("a.pem")))
    }

    const LONG: (Day, Day) = ((2020, 1, 1), (2999, 1, 1));
    const YEAR: (Day, Day) = ((2026, 1, 1), (2026, 12, 31));

    #[test]
    fn a_period_is_reported_outside_its_bounds_and_in_its_last_thirty_days() {
        let pem = pem(&[((2026, 3, 1), (2026, 12, 31))]);
        let said = |now| said(ExpiryWarning::of_chain(pem.as_bytes(), now));
        let early = "the certificate in a.pem is not valid before 2026-03-01 00:00 UTC: clients refuse it until then";
        let soon = "the certificate in a.pem expires on 2026-12-31 00:00 UTC: clients refuse it from then on";
        let late = "the certificate in a.pem expired on 2026-12-31 00:00 UTC: clients refuse it";
        for (now, expected) in [
            (at(3, 1, -1), early),
            (at(3, 1, 0), ""),
            (at(12, 1, -1), ""),
            (at(12, 1, 0), soon),
            (at(12, 31, 0), soon),
            (at(12, 31, 1), late),
        ] {
            assert_eq!(said(now), expected, "{now:?}");
        }
    }

    #[test]
    fn the_worst_certificate_of_a_chain_is_reported() {
        let now = at(12, 20, 0);
        for (periods, expected) in [
            (&[LONG, LONG][..], ""),
            (&[YEAR, LONG], "the certificate in a.pem expires"),
            (
                &[LONG, YEAR, LONG],
                "certificate 2 of 3 in a.pem, an intermediate one, expires",
            ),
            (
                &[YEAR, ((2020, 1, 1), (2021, 1, 1))],
                "certificate 2 of 2 in a.pem, an intermediate one, expired on 2021-01-01",
            ),
        ] {
            let said = said(ExpiryWarning::of_chain(pem(periods).as_bytes(), now));
            assert!(said.starts_with(expected), "{said}, not {expected}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
        }
    }

    #[test]
    fn one_valid_certificate_is_enough_to_verify_servers() {
        let now = at(12, 20, 0);
        let (old, older) = (((2020, 1, 1), (2025, 1, 1)), ((2020, 1, 1), (2021, 1, 1)));
        let (next, later) = (((2027, 1, 1), (2999, 1, 1)), ((2028, 1, 1), (2999, 1, 1)));
        for (periods, expected) in [
            (&[old, LONG, YEAR][..], ""),
            (&[next, LONG], ""),
            (&[], ""),
            (
                &[old],
                "the certificate in a.pem, which servers are verified against, expired on 2025",
            ),
            (
                &[older, old],
                "of the 2 certificates in a.pem the one that is valid for longest expired on 2025",
            ),
            (
                &[old, YEAR],
                "of the 2 certificates in a.pem the one that is valid for longest expires on 2026",
            ),
            (
                &[old, later, next],
                "of the 3 certificates in a.pem the one that is valid first is not valid before 2027",
            ),
        ] {
            let said = said(ExpiryWarning::of_trusted(pem(periods).as_bytes(), now));
            assert!(said.starts_with(expected), "{said}, not {expected}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{said}");
        }
    }

    #[test]
    fn a_running_process_has_a_problem_three_weeks_before_the_end() {
        let pem = pem(&[LONG, YEAR]);
        let chain = CertificatePeriod::of_chain(pem.as_bytes(), at(1, 1, 0));
        let period = CertificatePeriod {
            path: "a.pem".into(),
            validity: chain.expect("certificates"),
        };
        let said = |now: UnixTime| period.problem(now.as_secs()).unwrap_or_default();
        for (now, expected) in [
            (
                at(1, 1, -1),
                "the certificate in a.pem is not valid before 2026-01-01 00:00 UTC",
            ),
            (at(1, 1, 0), ""),
            (at(12, 10, 0), ""),
            (
                at(12, 10, 1),
                "the certificate in a.pem expires on 2026-12-31 00:00 UTC",
            ),
            (
                at(12, 31, 0),
                "the certificate in a.pem expires on 2026-12-31 00:00 UTC",
            ),
            (
                at(12, 31, 1),
                "the certificate in a.pem expired on 2026-12-31 00:00 UTC",
            ),
        ] {
            assert_eq!(said(now), expected, "{now:?}");
        }
    }

    #[test]
    fn the_period_of_a_chain_is_that_of_all_its_certificates() {
        let seconds = |(year, month, day): (i16, i8, i8)| {
            let start = jiff::civil::date(year, month, day).to_zoned(jiff::tz::TimeZone::UTC);
            u64::try_from(start.expect("a day").timestamp().as_second()).expect("after 1970")
        };
        let (early, middle) = (((2025, 1, 1), (2026, 6, 1)), ((2026, 6, 1), (2026, 12, 31)));
        let (late, last) = (((2027, 2, 1), (2028, 1, 1)), ((2027, 9, 1), (2029, 1, 1)));
        let all = pem(&[last, early, late, middle]);
        let period = |found: Option<Validity>| {
            let found = found.expect("certificates");
            (found.not_before, found.not_after)
        };
        let chain = period(CertificatePeriod::of_chain(all.as_bytes(), at(1, 1, 0)));
        assert_eq!(chain, (seconds((2027, 9, 1)), seconds((2026, 6, 1))));
        // One follows the other, then there is a gap.
        let trusted = |now| period(CertificatePeriod::of_trusted(all.as_bytes(), now));
        let first = (seconds((2025, 1, 1)), seconds((2026, 12, 31)));
        let second = (seconds((2027, 2, 1)), seconds((2029, 1, 1)));
        assert_eq!(trusted(at(5, 1, 0)), first);
        assert_eq!(trusted(at(12, 31, 0)), first);
        assert_eq!(trusted(at(12, 31, 1)), second);
        assert_eq!(trusted(UnixTime::since_unix_epoch(Duration::MAX)), second);
    }

    #[test]
    fn other_pem_blocks_are_not_reported() {
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "no PEM", damaged, "-----BEGIN CERTIFICATE-----\n"] {
            for check in [ExpiryWarning::of_chain, ExpiryWarning::of_trusted] {
                assert_eq!(check(pem.as_bytes(), at(1, 1, 0)), None, "{pem}");
            }
        }
    }
}
