//! The first bytes of a request: the wait for them takes no buffer.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::ready;

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once: most heads of requests fit.
const READ_BYTES: usize = 4096;

/// Waits until bytes can be read, and reads them; none at the end of the stream.
///
/// The buffer is on the stack while a read is attempted, so that an idle connection has none.
///
/// # Errors
/// The error of the read.
pub(super) async fn first_bytes<R>(stream: &mut R) -> io::Result<BytesMut>
where
    R: AsyncRead + Unpin + ?Sized,
{
    poll_fn(|context| {
        let mut space = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        Ok(BytesMut::from(buffer.filled())).into()
    })
    .await
}
