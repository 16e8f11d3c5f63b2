//! Counts the frames of a peer, client or server, that cost it nothing and this machine work. The
//! bounds are those of Envoy, except for resets, and for frames that are answered: h2 keeps no queue
//! of answers to bound.

use std::time::Duration;

use tokio::time::Instant;

use super::frame_tracker::{
    CONTINUATION, DATA, END_STREAM, FrameHead, HEADERS, RST_STREAM, WINDOW_UPDATE,
};

/// Types of frames (RFC 9113 section 6).
const PRIORITY: u8 = 2;
const GOAWAY: u8 = 7;

/// The error code for a peer that causes too much work.
const ENHANCE_YOUR_CALM: u32 = 11;

/// The most PRIORITY frames for each stream, and before the first.
const PRIORITIES_PER_STREAM: u64 = 100;

/// The HEADERS frames of each stream beyond which they count as control frames: a server may send any
/// number of informational responses.
const HEADERS_PER_STREAM: u64 = 10;

/// The most RST_STREAM frames beside one for each stream.
const RESETS: u64 = 100;

/// The RST_STREAM frames that this side may send before it opens another connection, and the streams
/// for each of them beyond that. Envoy closes a connection at 250, or at half of the streams. So many
/// are never reached with the up to 128 streams that are still open then.
const OWN_RESETS: u64 = 100;
const STREAMS_PER_OWN_RESET: u64 = 5;

/// The most WINDOW_UPDATE frames for each DATA frame that the peer was sent.
const WINDOW_UPDATES_PER_DATA: u64 = 10;

/// The most DATA frames without a byte, one after the other, on one connection.
const EMPTY_DATA: u32 = 10;

/// DATA frames of fewer bytes cost memory beside those, as long as nobody reads them.
const SMALL_DATA: usize = 4096;

/// The small DATA frames after which those that nobody has read are joined.
pub(super) const MANY_SMALL_DATA: u32 = 1024;

/// The most SETTINGS, PING and unknown frames within [`CONTROL_WINDOW`], beside one for each DATA
/// frame sent: peers measure the bandwidth with a PING for each.
const CONTROL: u64 = 1000;
const CONTROL_WINDOW: Duration = Duration::from_secs(10);

/// The counts of one connection.
#[derive(Debug, Default)]
pub(super) struct FloodCounter {
    last_stream: u32,
    streams: u64,
    data_sent: u64,
    headers: u64,
    priorities: u64,
    resets: u64,
    own_resets: u64,
    window_updates: u64,
    empty_data: u32,
    /// Small DATA frames since those that nobody had read were joined.
    pub(super) small_data: u32,
    control: u64,
    /// The beginning of the window of `control`: its first frame.
    since: Option<Instant>,
    /// The DATA frames sent before it.
    data_before: u64,
}

impl FloodCounter {
    /// Counts a frame to the peer.
    pub(super) fn sent(&mut self, head: FrameHead) {
        match head.kind {
            DATA => self.data_sent += 1,
            HEADERS => self.count_stream(head),
            RST_STREAM => self.own_resets += 1,
            _ => {}
        }
    }

    /// Returns true if this side has reset so many streams that the peer may take it for a flood.
    pub(super) fn has_reset_many(&self) -> bool {
        self.own_resets >= OWN_RESETS && self.own_resets * STREAMS_PER_OWN_RESET >= self.streams
    }

    /// Counts the stream of this head, if it is a new one. Only one side opens streams.
    fn count_stream(&mut self, head: FrameHead) {
        if head.stream > self.last_stream {
            self.last_stream = head.stream;
            self.streams += 1;
        }
    }

    /// Counts a frame of the peer. Returns true if it is one more than the bounds allow.
    pub(super) fn is_one_too_many(&mut self, head: FrameHead) -> bool {
        match head.kind {
            DATA => {
                let is_empty = head.length == 0 && head.flags & END_STREAM == 0;
                self.small_data += u32::from(head.length < SMALL_DATA);
                self.empty_data = if is_empty { self.empty_data + 1 } else { 0 };
                self.empty_data > EMPTY_DATA
            }
            HEADERS => {
                self.count_stream(head);
                self.headers += 1;
                self.headers > HEADERS_PER_STREAM * self.streams && self.is_control_flood()
            }
            // The library bounds these.
            CONTINUATION => false,
            RST_STREAM => {
                self.resets += 1;
                self.resets > RESETS + self.streams
            }
            PRIORITY => {
                self.priorities += 1;
                self.priorities > PRIORITIES_PER_STREAM * (1 + self.streams)
            }
            WINDOW_UPDATE => {
                self.window_updates += 1;
                let due = self.streams + WINDOW_UPDATES_PER_DATA * self.data_sent;
                self.window_updates > 5 + 2 * due
            }
            _ => self.is_control_flood(),
        }
    }

    fn is_control_flood(&mut self) -> bool {
        self.control += 1;
        // The clock is read for the first, and for those beyond the bound.
        let begin = *self.since.get_or_insert_with(Instant::now);
        if self.control <= CONTROL + (self.data_sent - self.data_before) {
            return false;
        }
        let now = Instant::now();
        if now - begin < CONTROL_WINDOW {
            return true;
        }
        (self.control, self.since, self.data_before) = (1, Some(now), self.data_sent);
        false
    }

    /// The GOAWAY that ends the connection.
    pub(super) fn goaway(&self) -> [u8; 17] {
        let mut frame = [0; 17];
        (frame[2], frame[3]) = (8, GOAWAY);
        frame[9..13].copy_from_slice(&self.last_stream.to_be_bytes());
        frame[13..].copy_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn head(kind: u8, length: usize, stream: u32) -> FrameHead {
        FrameHead {
            length,
            kind,
            flags: 0,
            stream,
        }
    }

    /// The number of such frames that are taken, at most `most`.
    fn taken(counter: &mut FloodCounter, head: FrameHead, most: usize) -> usize {
        (0..most)
            .take_while(|_| !counter.is_one_too_many(head))
            .count()
    }

    fn begin_streams(counter: &mut FloodCounter, streams: u32) {
        let heads = (0..streams).map(|number| head(HEADERS, 10, 2 * number + 1));
        assert!(
            heads
                .map(|head| counter.is_one_too_many(head))
                .all(|cut| !cut)
        );
    }

    #[test]
    fn priorities_are_bounded_by_streams() {
        for (streams, most) in [(0, 100), (1, 200), (9, 1000)] {
            let mut counter = FloodCounter::default();
            begin_streams(&mut counter, streams);
            assert_eq!(taken(&mut counter, head(PRIORITY, 5, 3), 5000), most);
        }
    }

    #[test]
    fn resets_are_bounded_by_streams_of_either_side() {
        let mut counter = FloodCounter::default();
        begin_streams(&mut counter, 3);
        assert_eq!(taken(&mut counter, head(RST_STREAM, 4, 1), 5000), 103);
        let mut counter = FloodCounter::default();
        (0..3).for_each(|number| counter.sent(head(HEADERS, 10, 2 * number + 1)));
        assert_eq!(taken(&mut counter, head(RST_STREAM, 4, 1), 5000), 103);
    }

    #[test]
    fn own_resets_wear_a_connection_out_by_number_and_share() {
        for (streams, most) in [(100, 100), (500, 100), (1000, 200)] {
            let mut counter = FloodCounter::default();
            (0..streams).for_each(|number| counter.sent(head(HEADERS, 10, 2 * number + 1)));
            let resets = (1..).find(|_| {
                counter.sent(head(RST_STREAM, 4, 1));
                counter.has_reset_many()
            });
            assert_eq!(resets, Some(most), "{streams}");
        }
    }

    #[test]
    fn informational_responses_are_bounded() {
        let mut counter = FloodCounter::default();
        let early = head(HEADERS, 10, 1);
        counter.sent(early);
        assert_eq!(taken(&mut counter, early, 5000), 1010);
    }

    #[test]
    fn trailers_open_no_stream() {
        let mut counter = FloodCounter::default();
        begin_streams(&mut counter, 1);
        assert!(!counter.is_one_too_many(head(HEADERS, 10, 1)));
        assert_eq!(taken(&mut counter, head(PRIORITY, 5, 1), 5000), 200);
    }

    #[test]
    fn window_updates_are_bounded_by_streams_and_data() {
        let mut counter = FloodCounter::default();
        assert_eq!(taken(&mut counter, head(WINDOW_UPDATE, 4, 0), 5000), 5);
        let mut counter = FloodCounter::default();
        begin_streams(&mut counter, 3);
        (0..20).for_each(|_| counter.sent(head(DATA, 1, 1)));
        let update = head(WINDOW_UPDATE, 4, 1);
        assert_eq!(taken(&mut counter, update, 5000), 5 + 2 * (3 + 200));
    }

    #[test]
    fn data_without_a_byte_is_bounded_in_a_row() {
        let mut counter = FloodCounter::default();
        let empty = head(DATA, 0, 1);
        for _ in 0..100 {
            assert_eq!(taken(&mut counter, empty, 10), 10);
            assert!(!counter.is_one_too_many(head(DATA, 1, 1)));
        }
        assert_eq!(taken(&mut counter, empty, 100), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_bounded_by_time_and_data() {
        let mut counter = FloodCounter::default();
        let ping = head(PING, 8, 0);
        for _ in 0..10 {
            assert_eq!(taken(&mut counter, ping, 900), 900);
            tokio::time::advance(CONTROL_WINDOW).await;
        }
        let mut counter = FloodCounter::default();
        for _ in 0..100_000 {
            counter.sent(head(DATA, 1, 1));
            assert!(!counter.is_one_too_many(ping));
        }
        assert_eq!(taken(&mut counter, ping, 5000), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn data_of_one_window_allows_no_pings_in_the_next() {
        let mut counter = FloodCounter::default();
        let ping = head(PING, 8, 0);
        (0..1500).for_each(|_| counter.sent(head(DATA, 1, 1)));
        assert_eq!(taken(&mut counter, ping, 2500), 2500);
        tokio::time::advance(CONTROL_WINDOW).await;
        assert_eq!(taken(&mut counter, ping, 5000), 1000);
    }

    #[test]
    fn the_last_frame_names_the_last_stream() {
        let mut counter = FloodCounter::default();
        begin_streams(&mut counter, 3);
        let goaway = counter.goaway();
        assert_eq!(goaway, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 11]);
    }
}
