//! Where the frames of an HTTP/2 client begin and end (RFC 9113, section 4.1). Pure.
//!
//! `h2` has no deadline for a frame: a client could send one byte a second of a frame that never
//! ends.

use super::detect::PREFACE;

/// Bytes of a frame's header: its length (3), type, flags, and stream (4).
const HEADER_BYTES: usize = 9;

/// Types and flags of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the bytes of a connection. Something is unfinished while a frame's header, the payload
/// of a frame other than DATA, or the list of headers that several frames carry is not complete.
/// Payloads of DATA are bodies of requests, which have bounds of their own kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES],
    /// How many bytes of `header` have been read.
    header_bytes: usize,
    /// How many bytes of the payload, or of the preface, are missing.
    missing: usize,
    /// Bytes of the payload, or of the preface.
    length: usize,
    /// Whether the payload counts: that of DATA and the preface do not.
    is_counted: bool,
    /// Whether the list of headers continues in the next frame.
    in_headers: bool,
}

/// What is unfinished after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfinished {
    Nothing,
    /// Something that these bytes began.
    New,
    /// What was unfinished before these bytes.
    Same,
}

impl Frames {
    /// The frames of a connection whose preface has not been read.
    pub(super) fn new() -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            missing: PREFACE.len(),
            length: PREFACE.len(),
            is_counted: false,
            in_headers: false,
        }
    }

    /// Reads the next bytes.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Unfinished {
        let mut is_same = self.is_unfinished();
        while !bytes.is_empty() {
            bytes = if self.missing > 0 { self.payload(bytes) } else { self.head(bytes) };
            is_same &= self.is_unfinished();
        }
        match (self.is_unfinished(), is_same) {
            (false, _) => Unfinished::Nothing,
            (true, false) => Unfinished::New,
            (true, true) => Unfinished::Same,
        }
    }

    /// Bytes of a DATA frame of which others are missing.
    pub(super) fn unfinished_data(&self) -> usize {
        if self.is_counted || self.missing == 0 { 0 } else { self.length - self.missing }
    }

    fn is_unfinished(&self) -> bool {
        self.header_bytes > 0 || self.in_headers || (self.missing > 0 && self.is_counted)
    }

    /// Reads bytes of a payload. Returns the others.
    fn payload<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = bytes.len().min(self.missing);
        self.missing -= count;
        &bytes[count..]
    }

    /// Reads bytes of a frame's header. Returns the others.
    fn head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = bytes.len().min(HEADER_BYTES - self.header_bytes);
        self.header[self.header_bytes..][..count].copy_from_slice(&bytes[..count]);
        self.header_bytes += count;
        if self.header_bytes == HEADER_BYTES {
            self.header_bytes = 0;
            let [high, middle, low, kind, flags, ..] = self.header;
            self.missing = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            self.length = self.missing;
            self.is_counted = kind != DATA;
            if matches!(kind, HEADERS | CONTINUATION) {
                self.in_headers = flags & END_HEADERS == 0;
            }
        }
        &bytes[count..]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        let header = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&header[..], &vec![0xff; usize::try_from(u32::from_be_bytes(length)).unwrap()]].concat()
    }

    fn after_preface() -> Frames {
        let mut frames = Frames::new();
        assert_eq!(frames.read(PREFACE), Unfinished::Nothing);
        frames
    }

    #[test]
    fn frame_is_unfinished_from_its_first_byte_to_its_last() {
        let bytes = frame(4, 0, 12);
        let mut frames = after_preface();
        assert_eq!(frames.read(&bytes[..1]), Unfinished::New);
        for index in 1..bytes.len() - 1 {
            assert_eq!(frames.read(&bytes[index..=index]), Unfinished::Same, "{index}");
        }
        assert_eq!(frames.read(&bytes[bytes.len() - 1..]), Unfinished::Nothing);
        // The end of one and the beginning of the next.
        assert_eq!(frames.read(&bytes[..20]), Unfinished::New);
        assert_eq!(frames.read(&[&bytes[20..], &bytes[..1]].concat()), Unfinished::New);
    }

    #[test]
    fn headers_are_unfinished_until_the_last_continuation() {
        let mut frames = after_preface();
        assert_eq!(frames.read(&frame(HEADERS, 1, 100)), Unfinished::New);
        assert_eq!(frames.read(&frame(CONTINUATION, 0, 0)), Unfinished::Same);
        assert_eq!(frames.read(&frame(CONTINUATION, END_HEADERS, 5)), Unfinished::Nothing);
        assert_eq!(frames.read(&frame(HEADERS, END_HEADERS, 5)), Unfinished::Nothing);
    }

    #[test]
    fn payload_of_data_is_not_counted() {
        let mut frames = after_preface();
        let bytes = frame(DATA, 0, 100);
        assert_eq!(frames.read(&bytes[..8]), Unfinished::New);
        assert_eq!(frames.unfinished_data(), 0);
        assert_eq!(frames.read(&bytes[8..50]), Unfinished::Nothing);
        assert_eq!(frames.unfinished_data(), 41);
        assert_eq!(frames.read(&bytes[50..]), Unfinished::Nothing);
        assert_eq!(frames.unfinished_data(), 0);
        frames.read(&frame(4, 0, 12)[..12]);
        assert_eq!(frames.unfinished_data(), 0);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn result_does_not_depend_on_how_the_bytes_are_split(
            parts in proptest::collection::vec((0..10_u8, any::<u8>(), 0..40_usize), 0..8),
            cuts in proptest::collection::vec(0..400_usize, 0..8),
            length in 0..400_usize,
        ) {
            let mut bytes = PREFACE.to_vec();
            for (kind, flags, length) in parts {
                bytes.extend(frame(kind, flags, length));
            }
            bytes.truncate(length);
            let (mut whole, mut split) = (Frames::new(), Frames::new());
            whole.read(&bytes);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                split.read(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(whole.is_unfinished(), split.is_unfinished());
            prop_assert_eq!(whole.missing, split.missing);
        }
    }
}
