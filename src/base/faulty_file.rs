//! [`FaultyFile`]: a file of redb on a disk that fails when a test wants it to.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;

/// What fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Each read and write.
    Disk,
    /// Each write but those of the first page, which has its place on the disk.
    Room,
    /// The synchronisation after this number of others. What was written before it can be read.
    Sync(u32),
}

/// What fails from now on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Fault>>);

#[derive(Debug)]
pub(crate) struct FaultyFile {
    file: FileBackend,
    faults: Faults,
}

/// Bytes of the first page, which has the header of the file.
const HEADER_BYTES: u64 = 4_096;

impl Faults {
    pub(crate) fn set(&self, fault: Fault) {
        *self.0.lock() = fault;
    }

    fn check(&self, fails: impl FnOnce(Fault) -> bool) -> io::Result<()> {
        if fails(*self.0.lock()) { Err(io::Error::other("a test wants this")) } else { Ok(()) }
    }
}

impl FaultyFile {
    /// Opens an existing file. It is not locked.
    pub(crate) fn open(path: &Path, faults: &Faults) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Self { file: FileBackend::new(file).unwrap(), faults: faults.clone() }
    }
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.faults.check(|fault| fault == Fault::Disk)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.check(|fault| matches!(fault, Fault::Disk | Fault::Room))?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.check(|fault| matches!(fault, Fault::Disk | Fault::Sync(0)))?;
        let mut fault = self.faults.0.lock();
        if let Fault::Sync(others) = *fault {
            *fault = Fault::Sync(others - 1);
        }
        drop(fault);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let has_place = offset < HEADER_BYTES;
        self.faults.check(|fault| fault == Fault::Disk || fault == Fault::Room && !has_place)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
