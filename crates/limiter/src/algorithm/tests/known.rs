//! Quotas that the field knows, and what their users expect of them.

use super::*;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
/// An hour of some day.
const NINE: u64 = 20_000 * DAY + 9 * HOUR;

/// A client that asks for one unit after another.
struct Client {
    algorithm: Algorithm,
    bucket: Bucket,
}

impl Client {
    fn new(algorithm: Algorithm) -> Self {
        let bucket = Bucket::new(&algorithm);
        Self { algorithm, bucket }
    }

    fn ask(&mut self, now: u64) -> Decision {
        self.bucket.charge(&self.algorithm, at(now), 1)
    }

    /// How many of so many requests at one instant are admitted.
    fn burst(&mut self, requests: u32, now: u64) -> u32 {
        let admitted = |_: &u32| self.ask(now).is_admitted();
        (0..requests).filter(admitted).count() as u32
    }

    fn retry_at(&mut self, now: u64) -> u64 {
        match self.ask(now).outcome {
            Outcome::Refuse { retry_at: Some(at) } => at.as_micros(),
            other => panic!("{other:?}"),
        }
    }

    /// For how long each of so many requests at one instant has to wait, in milliseconds; those
    /// that are refused are left out.
    fn waits(&mut self, requests: u32, now: u64) -> Vec<u64> {
        let wait = |_| match self.ask(now).outcome {
            Outcome::Admit => Some(0),
            Outcome::Delay { until } => Some((until.as_micros() - now) / MILLISECOND),
            Outcome::Refuse { .. } => None,
        };
        (0..requests).filter_map(wait).collect()
    }

    fn remaining(&self, now: u64) -> u32 {
        self.algorithm
            .decide(&self.bucket, at(now), 0)
            .remaining
            .try_into()
            .unwrap()
    }
}

fn gcra(limit: u32, window: u64, burst: u32) -> Client {
    Client::new(Algorithm::Gcra(
        Gcra::new(quota(limit, window), burst).unwrap(),
    ))
}

/// As nginx writes it: so many requests a second, `burst`, and `delay` or (as many as the burst)
/// `nodelay`.
fn nginx(rate: u32, burst: u32, delay: u32) -> Client {
    Client::new(Algorithm::LeakyBucket(
        LeakyBucket::new(quota(rate, SECOND), burst, Duration::from_secs(30), delay).unwrap(),
    ))
}

fn fixed(limit: u32, window: u64, start: Start) -> Client {
    Client::new(Algorithm::FixedWindow(FixedWindow::new(
        quota(limit, window),
        start,
    )))
}

fn log(limit: u32, window: u64) -> Client {
    Client::new(Algorithm::SlidingLog(
        SlidingLog::new(quota(limit, window)).unwrap(),
    ))
}

fn counters(limit: u32, window: u64, parts: u32, oldest: OldestPart) -> Client {
    let counters = SlidingCounters::new(quota(limit, window), parts, oldest).unwrap();
    Client::new(Algorithm::SlidingCounters(counters))
}

#[test]
fn five_thousand_an_hour_come_back_on_the_hour() {
    let mut client = fixed(5_000, HOUR, Start::EPOCH);
    assert_eq!(client.burst(6_000, NINE + HOUR - 1), 5_000);
    assert_eq!(client.retry_at(NINE + HOUR - 1), NINE + HOUR);
    assert_eq!(client.burst(6_000, NINE + HOUR), 5_000);
}

#[test]
fn five_hundred_tokens_and_one_each_ten_milliseconds() {
    let ten = 10 * MILLISECOND;
    let refill = IntervalRefill::new(500, 1, Duration::from_micros(ten)).unwrap();
    let stepwise = Algorithm::IntervalRefill(refill);
    let continuous = Algorithm::TokenBucket(Gcra::new(quota(100, SECOND), 500).unwrap());
    for algorithm in [stepwise, continuous] {
        let mut client = Client::new(algorithm);
        assert_eq!(client.burst(600, NINE), 500);
        assert_eq!(client.retry_at(NINE), NINE + ten);
        assert_eq!(client.burst(9, NINE + ten - 1), 0);
        assert_eq!(client.burst(9, NINE + ten), 1);
        assert_eq!(client.burst(600, NINE + 101 * ten), 100);
        assert_eq!(client.burst(600, NINE + 1_000 * ten), 500);
    }
}

#[test]
fn two_hundred_a_day_and_one_each_432_seconds() {
    let mut client = gcra(200, DAY, 200);
    assert_eq!(client.burst(300, NINE), 200);
    assert_eq!(client.retry_at(NINE), NINE + 432 * SECOND);
    let each = (1..=500).map(|step| client.burst(2, NINE + 432 * SECOND * step));
    assert!(each.into_iter().all(|admitted| admitted == 1));
}

#[test]
fn three_at_once_and_one_each_four_seconds() {
    let mut client = gcra(15, 60 * SECOND, 3);
    assert_eq!(client.burst(9, NINE), 3);
    assert_eq!(client.retry_at(NINE), NINE + 4 * SECOND);
    assert_eq!(client.burst(9, NINE + 4 * SECOND), 1);
    assert_eq!(client.burst(9, NINE + 60 * SECOND), 3);
}

#[test]
fn twenty_in_thirty_seconds() {
    let mut client = log(20, 30 * SECOND);
    for second in 0..20 {
        assert_eq!(client.burst(1, NINE + second * SECOND), 1);
    }
    assert_eq!(client.burst(9, NINE + 30 * SECOND - 1), 0);
    for second in 30..50 {
        assert_eq!(client.burst(9, NINE + second * SECOND), 1, "{second}");
    }
}

#[test]
fn ten_in_sixty_seconds_and_then_one_each_six() {
    let mut client = gcra(10, 60 * SECOND, 10);
    assert_eq!(client.burst(20, NINE), 10);
    for step in 1..=20 {
        assert_eq!(
            client.retry_at(NINE + 6 * SECOND * step - 1),
            NINE + 6 * SECOND * step
        );
        assert_eq!(client.burst(9, NINE + 6 * SECOND * step), 1);
    }
}

#[test]
fn fifteen_a_second() {
    let mut client = log(15, SECOND);
    assert_eq!(client.burst(20, NINE + 900 * MILLISECOND), 15);
    assert_eq!(client.burst(20, NINE + 1_900 * MILLISECOND - 1), 0);
    assert_eq!(client.burst(20, NINE + 1_900 * MILLISECOND), 15);
}

#[test]
fn three_hundred_in_fifteen_minutes() {
    let window = HOUR / 4;
    let mut two = Client::new(Algorithm::SlidingWindow(SlidingWindow::new(
        quota(300, window),
        OldestPart::Weighted,
    )));
    assert_eq!(two.burst(400, NINE + window / 2), 300);
    assert_eq!(two.retry_at(NINE + window), NINE + window + window / 300);
    assert_eq!(two.burst(400, NINE + window + window / 2), 150);
}

#[test]
fn five_hundred_an_hour_as_a_log_and_as_sixty_counters() {
    let minute = HOUR / 60;
    let mut log = log(500, HOUR);
    let mut sixty = counters(500, HOUR, 60, OldestPart::Whole);
    for client in [&mut log, &mut sixty] {
        for each in 0..50 {
            assert_eq!(client.burst(10, NINE + each * minute), 10);
        }
        assert_eq!(client.remaining(NINE + 50 * minute), 0);
    }
    // The log lets units go after an hour, the counters when all of their minute is an hour old.
    assert_eq!(log.retry_at(NINE + 50 * minute), NINE + HOUR);
    assert_eq!(sixty.retry_at(NINE + 50 * minute), NINE + HOUR + minute);
    assert_eq!(log.burst(20, NINE + HOUR), 10);
    assert_eq!(sixty.burst(20, NINE + HOUR + minute), 10);
}

#[test]
fn a_sliding_count_reads_three_two_none() {
    let five = 5 * SECOND;
    let ring = counters(10, five, 5, OldestPart::Ignored);
    for mut client in [log(10, five), ring] {
        assert_eq!(client.burst(1, NINE), 1);
        assert_eq!(client.burst(2, NINE + 3 * SECOND), 2);
        let count = |second: u64| 10 - client.remaining(NINE + second * SECOND);
        assert_eq!([4, 7, 9].map(count), [3, 2, 0]);
    }
}

/// A year of months that start on the 31st, or on their last day.
#[test]
fn three_a_month_from_the_31st() {
    let calendar = Calendar::new(Period::Month { anchor: 31 }, zone("Europe/Berlin"));
    let mut client = Client::new(Algorithm::FixedWindow(FixedWindow::periods(
        3,
        Arc::new(calendar),
        Start::Calendar,
    )));
    let instant = |text: &str| {
        let instant: jiff::Timestamp = text.parse().unwrap();
        instant.as_microsecond() as u64
    };
    assert_eq!(client.burst(9, instant("2028-02-10T12:00:00Z")), 3);
    let leap_day = instant("2028-02-28T23:00:00Z");
    assert_eq!(client.retry_at(leap_day - 1), leap_day);
    assert_eq!(client.burst(9, leap_day), 3);
    let summer = instant("2028-03-30T22:00:00Z");
    assert_eq!(client.retry_at(leap_day), summer);
    assert_eq!(client.burst(9, summer), 3);
}

/// <https://blog.nginx.org/blog/rate-limiting-nginx>, "Handling Bursts": the first is forwarded at
/// once, 20 wait, and one of them is forwarded every 100 ms; the 22nd is refused.
#[test]
fn a_queue_holds_what_nginx_calls_a_burst() {
    let mut client = nginx(10, 20, 0);
    let expected: Vec<u64> = (0..=20).map(|place| place * 100).collect();
    assert_eq!(client.waits(25, NINE), expected);
    assert_eq!(client.retry_at(NINE), NINE + 100 * MILLISECOND);
    assert_eq!(client.waits(5, NINE + 100 * MILLISECOND), [2_000]);
}

/// The same page, "Queueing with No Delay": 21 are forwarded at once; 101 ms later one more of 20,
/// or 501 ms later five.
#[test]
fn a_queue_without_delay_frees_a_place_each_turn() {
    for (later, admitted) in [(101, 1), (501, 5)] {
        let mut client = nginx(10, 20, 20);
        assert_eq!(client.waits(25, NINE), [0; 21]);
        let next = client.waits(20, NINE + later * MILLISECOND);
        assert_eq!(next, vec![0; admitted]);
    }
}

/// The same page, "Two-Stage Rate Limiting": 5 r/s, burst 12, delay 8. One passes by the rate and
/// eight as excess, four wait for their turn at 5 r/s, and the others are refused.
#[test]
fn a_part_of_a_queue_does_not_wait() {
    let mut client = nginx(5, 12, 8);
    let expected = [&[0; 9][..], &[200, 400, 600, 800]].concat();
    assert_eq!(client.waits(15, NINE), expected);
    // A client that keeps to the rate from here on waits as long as the last request did.
    assert_eq!(client.waits(2, NINE + 200 * MILLISECOND), [800]);
    assert_eq!(client.waits(2, NINE + 10 * SECOND), [0, 0]);
}

/// The documentation of ngx_http_limit_req_module: "not more than 1 request per second at an
/// average, with bursts not exceeding 5 requests".
#[test]
fn one_a_second_with_bursts_of_five() {
    let mut client = nginx(1, 5, 0);
    assert_eq!(
        client.waits(9, NINE),
        [0, 1_000, 2_000, 3_000, 4_000, 5_000]
    );
    assert_eq!(nginx(1, 0, 0).waits(3, NINE), [0]);
}

/// Nobody is held for longer than he would wait for.
#[test]
fn a_wait_has_a_bound() {
    let wait = Duration::from_millis(250);
    let leaky = LeakyBucket::new(quota(10, SECOND), 50, wait, 0).unwrap();
    let mut client = Client::new(Algorithm::LeakyBucket(leaky));
    assert_eq!(client.waits(9, NINE), [0, 100, 200]);
    let half = NINE + 50 * MILLISECOND;
    assert_eq!(
        client.retry_at(NINE),
        half,
        "a wait of 250 ms is none too long"
    );
    assert_eq!(client.waits(9, half), [250]);
}
