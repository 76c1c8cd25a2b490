//! A place for lines that may fail: whole lines arrive there or none, whatever the disk does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;

use crate::policy::access_log::Output;

/// Where lines go, and the rest of a line that did not fit.
pub(super) struct Sink<W = File> {
    place: W,
    /// The end of a line whose beginning is written: it goes first next time, so that a disk with
    /// room again has whole lines only.
    rest: Vec<u8>,
}

impl Sink {
    /// Opens `output`; none where lines go nowhere.
    pub(super) fn open(output: &Output) -> io::Result<Option<Self>> {
        let place = match output {
            Output::Off => return Ok(None),
            // The standard library's own handle would cut what is written at every line.
            Output::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Output::File(path) => OpenOptions::new().append(true).create(true).open(path)?,
        };
        Ok(Some(Self::on(place)))
    }
}

impl<W: Write> Sink<W> {
    fn on(place: W) -> Self {
        Self { place, rest: Vec::new() }
    }

    /// Writes whole lines. Returns how many of them were lost, and why.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let rest = std::mem::take(&mut self.rest);
        if let Err((written, error)) = write_all(&mut self.place, &rest) {
            self.rest = rest[written..].to_vec();
            return Err((count(lines), error));
        }
        write_all(&mut self.place, lines).map_err(|(written, error)| {
            let (before, after) = lines.split_at(written);
            let mut lost = count(after);
            if before.last().is_some_and(|last| *last != b'\n') {
                let end = after.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.rest = after[..end].to_vec();
                lost = lost.saturating_sub(1);
            }
            (lost, error)
        })
    }

    /// How many lines are lost with this place: one where it has only a line's beginning.
    pub(super) fn unfinished(&self) -> u64 {
        count(&self.rest)
    }
}

/// How many lines end within `text`.
pub(super) fn count(text: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n').skip(1).count() as u64
}

/// Writes all, or returns how much was written before it failed.
fn write_all(place: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
        match place.write(left) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A disk that has room for so many bytes, and a kernel that takes a few at a time.
    #[derive(Default)]
    struct Disk {
        room: usize,
        held: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room).min(7);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.held.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        /// Whatever fills up and is cleared when: lines are whole, in order, and none is lost
        /// that is not counted.
        #[test]
        fn lines_are_whole_or_lost(batches in proptest::collection::vec((0..60_usize, 1..5_u64), 1..40)) {
            let mut sink = Sink::on(Disk::default());
            let (mut number, mut lost) = (0, 0);
            for (room, lines) in batches {
                sink.place.room = room;
                let mut batch = Vec::new();
                for _ in 0..lines {
                    batch.extend_from_slice(format!("line {number}\n").as_bytes());
                    number += 1;
                }
                lost += sink.write(&batch).err().map_or(0, |(lost, _)| lost);
            }
            sink.place.room = usize::MAX;
            sink.write(b"").unwrap();
            let held = String::from_utf8(sink.place.held).unwrap();
            let mut last = None;
            for line in held.lines() {
                let number: u64 = line.strip_prefix("line ").unwrap().parse().unwrap();
                prop_assert!(last < Some(number));
                last = Some(number);
            }
            prop_assert_eq!(held.lines().count() as u64 + lost, number);
        }
    }
}
