//! Smooth weighted round robin, as nginx has it: each endpoint gets its share of any few requests,
//! and those of a heavy endpoint do not follow one another.

/// The state of a round.
#[derive(Debug, Default)]
pub(crate) struct SmoothWeights {
    /// What is due to each endpoint, by its index. The sum is 0.
    due: Vec<i64>,
}

impl SmoothWeights {
    /// Begins with endpoints, of which only these indexes are chosen from now on. What was due to
    /// others is forgotten.
    pub(crate) fn keep(&mut self, endpoints: usize, chosen: &[usize]) {
        let mut due = vec![0; endpoints];
        for index in chosen {
            if let (Some(new), Some(old)) = (due.get_mut(*index), self.due.get(*index)) {
                *new = *old;
            }
        }
        self.due = due;
    }

    /// The next endpoint of `chosen`, each an index and a weight; not that with the index `not`.
    pub(crate) fn next(
        &mut self,
        chosen: impl Iterator<Item = (usize, u32)>,
        not: Option<usize>,
    ) -> Option<usize> {
        let (mut total, mut most, mut best) = (0, i64::MIN, None);
        for (index, weight) in chosen {
            let weight = i64::from(weight);
            let Some(due) = self.due.get_mut(index) else { continue };
            if Some(index) == not {
                continue;
            }
            *due += weight;
            total += weight;
            if *due > most {
                (most, best) = (*due, Some(index));
            }
        }
        if let Some(due) = self.due.get_mut(best?) {
            *due -= total;
        }
        best
    }
}
