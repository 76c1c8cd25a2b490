//! Encoders of the content codings.
//!
//! The levels are those at which a core compresses some tens to hundreds of megabytes a second, so
//! that a part of a body, 64 KiB at most, delays other requests of its thread for one or two
//! milliseconds at most. The windows bound the memory of an encoder.

use std::io::{self, Write as _};

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use zstd::stream::write::Encoder as ZstdEncoder;
use zstd::zstd_safe::CParameter;

use crate::policy::compression::Coding;

/// Level of gzip, of 1 to 9.
const GZIP_LEVEL: u32 = 5;

/// Level of Brotli, of 0 to 11.
const BROTLI_LEVEL: u32 = 4;

/// Window of Brotli, as a power of two: 256 KiB.
const BROTLI_WINDOW: u32 = 18;

/// Size of Brotli's buffer for output, in bytes.
const BROTLI_BUFFER: usize = 4096;

/// Level of Zstandard, of 1 to 22.
const ZSTD_LEVEL: i32 = 3;

/// Window of Zstandard, as a power of two: 256 KiB. Decoders accept windows of up to 8 MiB (RFC
/// 9659, section 3).
const ZSTD_WINDOW: u32 = 18;

/// Compresses one body. Nothing is held back: what was put in comes out at once.
pub(in crate::gateway) enum Encoder {
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    /// In a lock, because the encoder cannot be shared between threads. Only the owner uses it.
    Zstd(Mutex<ZstdEncoder<'static, Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// # Errors
    /// There is not enough memory.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Br => {
                let encoder =
                    CompressorWriter::new(Vec::new(), BROTLI_BUFFER, BROTLI_LEVEL, BROTLI_WINDOW);
                Self::Brotli(Box::new(encoder))
            }
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW))?;
                Self::Zstd(Mutex::new(encoder))
            }
            Coding::Gzip => {
                Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL)))
            }
        })
    }

    /// Compresses a part that is not empty.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn encode(&mut self, part: &[u8]) -> io::Result<Bytes> {
        let written = match self {
            Self::Brotli(encoder) => {
                encoder.write_all(part)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            Self::Zstd(encoder) => {
                let encoder = encoder.get_mut();
                encoder.write_all(part)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            Self::Gzip(encoder) => {
                encoder.write_all(part)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
        };
        Ok(written.into())
    }

    /// The end of the body.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn finish(self) -> io::Result<Bytes> {
        let rest = match self {
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.into_inner().finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        Ok(rest.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::config::words::Word as _;

    /// Decodes as much of a body as there is, with the library of the same coding.
    fn decoded(coding: Coding, body: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        // An error means that the body has not ended.
        let _ = match coding {
            Coding::Br => brotli::Decompressor::new(body, 4096).read_to_end(&mut plain),
            Coding::Zstd => zstd::Decoder::new(body).unwrap().read_to_end(&mut plain),
            Coding::Gzip => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        };
        plain
    }

    #[test]
    fn every_part_can_be_decoded_at_once() {
        for coding in Coding::ALL.iter().copied() {
            let mut encoder = Encoder::new(coding).unwrap();
            let (mut body, mut plain) = (Vec::new(), Vec::new());
            for part in ["first ", "second ", "x", &"third ".repeat(40_000)] {
                body.extend_from_slice(&encoder.encode(part.as_bytes()).unwrap());
                plain.extend_from_slice(part.as_bytes());
                assert!(decoded(coding, &body) == plain, "{}", coding.name());
            }
            assert!(body.len() < plain.len() / 100, "{}: {}", coding.name(), body.len());
            body.extend_from_slice(&encoder.finish().unwrap());
            assert!(decoded(coding, &body) == plain, "{}", coding.name());
        }
    }

    #[test]
    fn body_without_parts_is_valid() {
        for coding in Coding::ALL.iter().copied() {
            let body = Encoder::new(coding).unwrap().finish().unwrap();
            assert!(!body.is_empty() && decoded(coding, &body).is_empty(), "{}", coding.name());
        }
    }
}
