//! The coding that a request gets by `Accept-Encoding` (RFC 9110, section 12.5.3).

use http::{HeaderMap, header};

use super::Coding;
use crate::net::weighted;

/// The item for all codings that are not listed.
const ANY: &str = "*";

const IDENTITY: &str = "identity";

/// An old name of gzip (RFC 9110, section 8.4.1.3).
const X_GZIP: &str = "x-gzip";

/// The coding of these that the client prefers; of several, the first one. `None`: no coding,
/// because it accepts none of them or prefers none.
pub(super) fn coding(codings: &[Coding], request: &HeaderMap) -> Option<Coding> {
    let accepted = Accepted::of(request);
    let mut best: Option<(u16, Coding)> = None;
    for coding in codings {
        let quality = accepted.quality(*coding).unwrap_or(0);
        if quality > best.map_or(0, |(most, _)| most) {
            best = Some((quality, *coding));
        }
    }
    // Without a weight of its own, no coding is what the client prefers least.
    let plain = accepted.identity.or(accepted.any).unwrap_or(0);
    best.filter(|(quality, _)| *quality >= plain).map(|(_, coding)| coding)
}

/// The weights of a request, in thousandths; `None`: not listed.
#[derive(Default)]
struct Accepted {
    br: Option<u16>,
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepted {
    fn of(request: &HeaderMap) -> Self {
        let mut accepted = Self::default();
        for item in weighted::items(request, &header::ACCEPT_ENCODING) {
            let is = |name: &str| item.item.eq_ignore_ascii_case(name);
            let own = if is(Coding::Br.name()) {
                &mut accepted.br
            } else if is(Coding::Zstd.name()) {
                &mut accepted.zstd
            } else if is(Coding::Gzip.name()) || is(X_GZIP) {
                &mut accepted.gzip
            } else if is(IDENTITY) {
                &mut accepted.identity
            } else if is(ANY) {
                &mut accepted.any
            } else {
                continue;
            };
            // Listed twice, the higher weight holds.
            *own = (*own).max(Some(item.quality));
        }
        accepted
    }

    fn quality(&self, coding: Coding) -> Option<u16> {
        let own = match coding {
            Coding::Br => self.br,
            Coding::Zstd => self.zstd,
            Coding::Gzip => self.gzip,
        };
        own.or(self.any)
    }
}
