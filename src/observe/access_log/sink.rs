//! The output of the access log. It contains only whole lines, even if a disk was full in between.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use crate::policy::access_log::Output;

/// Permissions of a new log file, before the process' umask. Lines contain client addresses, which
/// not every user of the machine may read.
const MODE: u32 = 0o640;

/// An open output, and the unwritten end of a line.
pub(super) struct Sink<W = File> {
    output: W,
    /// End of a line whose beginning is written. It is written first next time, so that the line is
    /// whole once the disk has room again.
    rest: Vec<u8>,
}

impl Sink {
    /// Opens `output` for appending; `None` if it is off.
    pub(super) fn open(output: &Output) -> io::Result<Option<Self>> {
        let file = match output {
            Output::Off => return Ok(None),
            // `io::Stdout` would flush at every line feed.
            Output::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Output::File(path) => {
                OpenOptions::new().append(true).create(true).mode(MODE).open(path)?
            }
        };
        Ok(Some(Self::on(file)))
    }

    /// Closes this sink in favour of `next`. Returns the number of lost lines: 1 if a line is
    /// written only in part, its end still cannot be written, and `next` is not the same file.
    pub(super) fn replace_with(mut self, next: Option<&mut Self>) -> u64 {
        let _ = self.write(b"");
        if self.rest.is_empty() {
            return 0;
        }
        match next.filter(|next| is_same(&self.output, &next.output)) {
            Some(next) => {
                next.rest = self.rest;
                0
            }
            None => count(&self.rest),
        }
    }
}

impl<W: Write> Sink<W> {
    fn on(output: W) -> Self {
        Self { output, rest: Vec::new() }
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// How many of the lines are lost, and why.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        let rest = std::mem::take(&mut self.rest);
        if let Err((written, error)) = write_all(&mut self.output, &rest) {
            self.rest = rest[written..].to_vec();
            return Err((count(lines), error));
        }
        write_all(&mut self.output, lines).map_err(|(written, error)| {
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

/// Whether both have the same device and inode.
fn is_same(one: &File, other: &File) -> bool {
    let id = |file: &File| file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Number of line feeds in `text`.
pub(super) fn count(text: &[u8]) -> u64 {
    text.split(|byte| *byte == b'\n').skip(1).count() as u64
}

/// Writes all of `bytes`. On failure, also returns how many bytes were written.
fn write_all(output: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
        match output.write(left) {
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

    /// A disk with `room` bytes left that accepts at most 7 bytes per call.
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
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// However the room changes, lines are whole and in order, and every lost line is counted.
        #[test]
        fn lines_are_written_whole_or_counted_as_lost(batches in proptest::collection::vec((0..60_usize, 1..5_u64), 1..40)) {
            let mut sink = Sink::on(Disk::default());
            let (mut number, mut lost) = (0, 0);
            for (room, lines) in batches {
                sink.output.room = room;
                let mut batch = Vec::new();
                for _ in 0..lines {
                    batch.extend_from_slice(format!("line {number}\n").as_bytes());
                    number += 1;
                }
                lost += sink.write(&batch).err().map_or(0, |(lost, _)| lost);
            }
            sink.output.room = usize::MAX;
            sink.write(b"").unwrap();
            let held = String::from_utf8(sink.output.held).unwrap();
            let mut last = None;
            for line in held.lines() {
                let number: u64 = line.strip_prefix("line ").unwrap().parse().unwrap();
                prop_assert!(last < Some(number));
                last = Some(number);
            }
            prop_assert_eq!(held.lines().count() as u64 + lost, number);
        }
    }

    /// A file that contains the beginning of a line, on a disk without room for the end.
    fn partial(path: &Path) -> Sink {
        std::fs::write(path, "begin").unwrap();
        Sink { output: File::open(path).unwrap(), rest: b"end\n".to_vec() }
    }

    #[test]
    fn partial_line_is_completed_in_the_same_file_or_counted_as_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let opened = |path: &Path| Sink::open(&Output::File(path.to_owned())).unwrap().unwrap();
        let before = partial(&path);
        let mut same = opened(&path);
        assert_eq!(before.replace_with(Some(&mut same)), 0);
        same.write(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "beginend\nnext\n");

        let before = partial(&path);
        std::fs::rename(&path, folder.path().join("renamed")).unwrap();
        let mut other = opened(&path);
        assert_eq!(before.replace_with(Some(&mut other)), 1);
        other.write(b"next\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        assert_eq!(partial(&path).replace_with(None), 1);

        std::fs::write(&path, "begin").unwrap();
        let roomy = Sink { rest: b"end\n".to_vec(), ..opened(&path) };
        assert_eq!(roomy.replace_with(None), 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "beginend\n");
    }
}
