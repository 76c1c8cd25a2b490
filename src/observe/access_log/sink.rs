//! A place for lines that may fail: whole lines arrive there or none, whatever the disk does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use crate::policy::access_log::Output;

/// Permissions of a log that is created, less the process' umask: lines hold addresses of clients,
/// which are not for every user of the machine.
const MODE: u32 = 0o640;

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
            Output::File(path) => {
                OpenOptions::new().append(true).create(true).mode(MODE).open(path)?
            }
        };
        Ok(Some(Self::on(place)))
    }

    /// Leaves this place for `next`. Returns how many lines are lost with it: one where it has only
    /// a line's beginning, still has no room for its end, and is not the same file again.
    pub(super) fn leave(mut self, next: Option<&mut Self>) -> u64 {
        let _ = self.write(b"");
        if self.rest.is_empty() {
            return 0;
        }
        match next.filter(|next| is_same(&self.place, &next.place)) {
            Some(next) => {
                next.rest = self.rest;
                0
            }
            None => count(&self.rest),
        }
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
}

/// Whether both are the same file.
fn is_same(one: &File, other: &File) -> bool {
    let id = |file: &File| file.metadata().ok().map(|about| (about.dev(), about.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
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
    use std::path::Path;

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

    /// A file that has the beginning of a line, and a disk that has no room for its end.
    fn cut(path: &Path) -> Sink {
        std::fs::write(path, "begin").unwrap();
        Sink { place: File::open(path).unwrap(), rest: b"end\n".to_vec() }
    }

    #[test]
    fn the_end_of_a_line_goes_behind_its_beginning_or_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let opened = |path: &Path| Sink::open(&Output::File(path.to_owned())).unwrap().unwrap();
        let before = cut(&path);
        let mut same = opened(&path);
        assert_eq!(before.leave(Some(&mut same)), 0);
        same.write(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "beginend\nnext\n");

        let before = cut(&path);
        std::fs::rename(&path, folder.path().join("renamed")).unwrap();
        let mut other = opened(&path);
        assert_eq!(before.leave(Some(&mut other)), 1);
        other.write(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(cut(&path).leave(None), 1);

        std::fs::write(&path, "begin").unwrap();
        let roomy = Sink { rest: b"end\n".to_vec(), ..opened(&path) };
        assert_eq!(roomy.leave(None), 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "beginend\n");
    }
}
