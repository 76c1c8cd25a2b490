//! [`Position`]: which changes of the key store a gateway has seen, and whether it may have missed
//! one. Pure.

use crate::base::hash::Digest;

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Numbers are consecutive, from 1 on.
    pub number: u64,
    /// A random number, which identifies the change: after a loss of data, another one may have
    /// the same number.
    pub nonce: u64,
    /// The keys that the record had, and has now.
    pub digests: Vec<Digest>,
}

/// The last change that a gateway has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Position {
    /// No changes have been read yet.
    #[default]
    Unknown,
    /// There was no change so far.
    Empty,
    At {
        number: u64,
        nonce: u64,
    },
}

/// What follows from changes that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    /// These keys may have changed.
    Changed(Vec<Digest>),
    /// A change may have been missed: all keys may have changed.
    Lost,
}

impl Position {
    /// Number of the first change to read: the last one that was seen, to recognise it.
    pub const fn first_wanted(self) -> u64 {
        match self {
            Self::Unknown | Self::Empty => 1,
            Self::At { number, .. } => number,
        }
    }

    /// Moves to the last of the changes that there are from
    /// [`first_wanted`](Self::first_wanted) on, in order, and returns what follows.
    pub fn advance(&mut self, read: Vec<Change>) -> Advance {
        let last = read.last().map(|last| Self::At { number: last.number, nonce: last.nonce });
        let is_first_known = match (*self, read.first()) {
            (Self::Unknown, _) | (Self::At { .. }, None) => false,
            (Self::Empty, None) => true,
            (Self::Empty, Some(first)) => first.number == 1,
            (Self::At { number, nonce }, Some(first)) => {
                first.number == number && first.nonce == nonce
            }
        };
        let has_gap = read.windows(2).any(|pair| match pair {
            [before, after] => before.number.checked_add(1) != Some(after.number),
            _ => false,
        });
        let seen = usize::from(matches!(self, Self::At { .. }));
        *self = last.unwrap_or(Self::Empty);
        if !is_first_known || has_gap {
            return Advance::Lost;
        }
        let new = read.into_iter().skip(seen);
        Advance::Changed(new.flat_map(|change| change.digests).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(number: u64) -> Change {
        let digest = [u8::try_from(number % 256).unwrap(); 32];
        Change { number, nonce: number * 7, digests: vec![digest] }
    }

    fn at(number: u64) -> Position {
        Position::At { number, nonce: number * 7 }
    }

    fn digests(numbers: impl IntoIterator<Item = u64>) -> Advance {
        Advance::Changed(numbers.into_iter().flat_map(|number| change(number).digests).collect())
    }

    #[test]
    fn missed_change_is_noticed() {
        let other = Change { nonce: 1, ..change(5) };
        let table: [(&str, Position, Vec<Change>, Advance, Position); 11] = [
            ("start", Position::Unknown, vec![], Advance::Lost, Position::Empty),
            ("start with data", Position::Unknown, vec![change(3)], Advance::Lost, at(3)),
            ("still empty", Position::Empty, vec![], digests([]), Position::Empty),
            ("first", Position::Empty, vec![change(1), change(2)], digests([1, 2]), at(2)),
            ("first is gone", Position::Empty, vec![change(2)], Advance::Lost, at(2)),
            ("no change", at(5), vec![change(5)], digests([]), at(5)),
            ("two", at(5), vec![change(5), change(6), change(7)], digests([6, 7]), at(7)),
            ("trimmed", at(5), vec![change(6), change(7)], Advance::Lost, at(7)),
            ("data lost", at(5), vec![], Advance::Lost, Position::Empty),
            (
                "other data",
                at(5),
                vec![other.clone()],
                Advance::Lost,
                Position::At { number: 5, nonce: 1 },
            ),
            ("gap", at(5), vec![change(5), change(7)], Advance::Lost, at(7)),
        ];
        for (what, mut position, read, expected, then) in table {
            assert_eq!(position.advance(read), expected, "{what}");
            assert_eq!(position, then, "{what}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// Whatever part of the changes each read has, none is missed unless it is reported.
        #[test]
        fn each_change_is_seen_or_its_loss_is(reads in prop::collection::vec((1_u64..9, 0_u64..20), 1..20)) {
            let (mut position, mut stored) = (Position::Empty, Vec::new());
            let (mut seen, mut kept_from) = (0, 1);
            for (added, trimmed) in reads {
                let first = stored.len() as u64 + 1;
                stored.extend((first..first + added).map(change));
                kept_from = (kept_from + trimmed).min(stored.len() as u64);
                let wanted = position.first_wanted().max(kept_from);
                let read: Vec<Change> =
                    stored.iter().filter(|change| change.number >= wanted).cloned().collect();
                let is_whole = kept_from <= position.first_wanted();
                let expected = digests(seen + 1..=stored.len() as u64);
                let advance = position.advance(read);
                prop_assert_eq!(advance, if is_whole { expected } else { Advance::Lost });
                seen = stored.len() as u64;
            }
        }
    }
}
