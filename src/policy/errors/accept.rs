//! The header `Accept` (RFC 9110, section 12.5.1), as far as errors need it: parameters of media
//! types are ignored, and items that are not valid.

use http::{HeaderMap, header};

use crate::net::weighted::{self, Weighted};

/// Media type that names all JSON here, also problem documents.
pub(super) const JSON: &str = "application/json";

/// The media types that a client accepts.
#[derive(Debug)]
pub struct Accept<'a> {
    /// `text/html`, `text/*` or `*/*`.
    ranges: Vec<Weighted<'a>>,
}

/// How much a client prefers a media type; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preference {
    /// In thousandths, above 0.
    quality: u16,
    fit: Fit,
}

/// How a range matches a media type, the least specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    All,
    Kind,
    Named,
}

impl<'a> Accept<'a> {
    /// What a request with these headers accepts; `None` without the header, or if nothing of it is
    /// valid.
    pub fn of(request: &'a HeaderMap) -> Option<Self> {
        let ranges = weighted::items(request, &header::ACCEPT);
        let ranges: Vec<_> = ranges.filter(|range| range.item.contains('/')).collect();
        (!ranges.is_empty()).then_some(Self { ranges })
    }

    /// How much the client prefers a media type; `None`: it does not accept it. The most specific
    /// range decides. `is_json`: `application/json` names it, too, unless it is refused.
    pub fn preference(&self, media_type: &str, is_json: bool) -> Option<Preference> {
        let fits = self.ranges.iter().filter_map(|range| {
            let own = fit(range.item, media_type);
            let fit =
                own.or_else(|| fit(range.item, JSON).filter(|_| is_json && range.quality > 0))?;
            Some((fit, own.is_some(), range.quality))
        });
        let (fit, _, quality) = fits.max()?;
        (quality > 0).then_some(Preference { quality, fit })
    }
}

/// How a range matches a media type in lower case.
fn fit(range: &str, media_type: &str) -> Option<Fit> {
    if range == "*/*" {
        return Some(Fit::All);
    }
    if range.eq_ignore_ascii_case(media_type) {
        return Some(Fit::Named);
    }
    let kind = range.strip_suffix("/*")?;
    let (own, _) = media_type.split_once('/')?;
    own.eq_ignore_ascii_case(kind).then_some(Fit::Kind)
}
