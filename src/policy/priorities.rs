//! Priorities of plans: whose requests are refused last while an upstream has as many in flight as
//! it may.

/// The priorities of all plans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Priorities {
    by_plan: Vec<Priority>,
    ranks: u32,
}

/// The priority of one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Priority {
    number: i16,
    rank: u32,
}

impl Priorities {
    /// The priorities of the plans with these numbers, in the order of the file.
    pub fn new(numbers: &[i16]) -> Self {
        let mut levels = numbers.to_vec();
        levels.sort_unstable_by(|one, other| other.cmp(one));
        levels.dedup();
        let rank = |number: i16| (0..).zip(&levels).find(|(_, level)| **level == number);
        let of = |number: &i16| Priority {
            number: *number,
            rank: rank(*number).map_or(0, |(rank, _)| rank),
        };
        Self {
            by_plan: numbers.iter().map(of).collect(),
            ranks: u32::try_from(levels.len()).unwrap_or(u32::MAX),
        }
    }

    /// The number of a plan as in the file.
    pub fn number(&self, plan: u32) -> i16 {
        self.by_plan.get(plan as usize).map_or(0, |priority| priority.number)
    }

    /// How many priorities are above that of a plan.
    pub fn rank(&self, plan: u32) -> u32 {
        self.by_plan.get(plan as usize).map_or(0, |priority| priority.rank)
    }

    /// How many different priorities the plans have.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_the_priorities_above() {
        let priorities = Priorities::new(&[0, 10, -5, 0]);
        let ranks = [0, 1, 2, 3].map(|plan| priorities.rank(plan));
        assert_eq!((ranks, priorities.ranks()), ([1, 0, 2, 1], 3));
        assert_eq!([0, 1, 2].map(|plan| priorities.number(plan)), [0, 10, -5]);
    }
}
