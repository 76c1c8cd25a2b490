//! The search for the route of one request by a router whose routes have conditions or expressions.

use std::cell::{OnceCell, RefCell};

use smallvec::SmallVec;

use super::{Candidate, Outcome, PathError, Paths, RequestParts, Router};
use crate::policy::condition::Condition;
use crate::policy::expression::StepsLeft;
use crate::policy::matcher;
use crate::policy::request_values::RequestValues;

/// The search for one request.
#[derive(Debug)]
pub(super) struct Search<'a> {
    router: &'a Router,
    request: RequestParts<'a>,
    /// Whether conditions on headers and cookies are taken as met.
    ignores_headers: bool,
    /// The values that conditions are about, once one of them needs some.
    values: OnceCell<RequestValues<'a>>,
    steps_left: StepsLeft,
    /// The results of long lists, which many readings of one path have in common.
    found: RefCell<SmallVec<[Found; 2]>>,
}

/// The place of a list in memory, and its route for the request.
type Found = (*const Candidate, Option<u32>);

/// Length from which the result of a list is kept.
const LONG_LIST: usize = 16;

impl<'a> Search<'a> {
    pub(super) fn new(router: &'a Router, request: RequestParts<'a>) -> Self {
        Self {
            router,
            request,
            ignores_headers: false,
            values: OnceCell::new(),
            steps_left: StepsLeft::default(),
            found: RefCell::default(),
        }
    }

    /// The same, with conditions on headers and cookies taken as met.
    pub(super) fn without_headers(self) -> Self {
        Self { ignores_headers: true, ..self }
    }

    /// Index of the route for one reading of the path, if one matches.
    ///
    /// # Errors
    /// The route depends on which value of a condition's source a server reads, or all searches of
    /// the request with expressions have taken too many steps.
    pub(super) fn find(&self, host: &str, reading: &str) -> Result<Option<u32>, PathError> {
        for paths in self.router.by_host.of(host) {
            for list in paths.specific_lists(reading) {
                let found = self.first(list)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            let found = self.find_last(paths, reading)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same among the least specific routes of a host.
    fn find_last(&self, paths: &Paths, reading: &str) -> Result<Option<u32>, PathError> {
        let Some(last) = paths.last.as_deref().filter(|_| reading.starts_with('/')) else {
            return Ok(None);
        };
        for (expression, candidates) in &last.expressions {
            let matches = expression.matches_within(reading, &self.steps_left);
            if matches.map_err(|_| PathError::TooLong)? {
                let found = self.first(candidates)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        self.first(&last.all)
    }

    /// The first route of a list whose conditions the request meets.
    fn first(&self, list: &[Candidate]) -> Result<Option<u32>, PathError> {
        if list.len() < LONG_LIST {
            return self.search(list);
        }
        let kept = self.found.borrow().iter().find(|(other, _)| *other == list.as_ptr()).copied();
        if let Some((_, found)) = kept {
            return Ok(found);
        }
        let found = self.search(list)?;
        self.found.borrow_mut().push((list.as_ptr(), found));
        Ok(found)
    }

    fn search(&self, list: &[Candidate]) -> Result<Option<u32>, PathError> {
        for candidate in list {
            match self.outcome(candidate) {
                Outcome::Yes => return Ok(Some(candidate.route)),
                Outcome::Depends => return Err(PathError::DifferentValues),
                Outcome::No => {}
            }
        }
        Ok(None)
    }

    /// Whether the request meets the conditions of a route.
    fn outcome(&self, candidate: &Candidate) -> Outcome {
        let conditions = &candidate.conditions;
        if !matcher::takes(&conditions.methods, self.request.method) {
            return Outcome::No;
        }
        if conditions.on_values.is_empty() {
            return Outcome::Yes;
        }
        let values =
            self.values.get_or_init(|| RequestValues::read(&self.router.sources, self.request));
        let mut outcome = Outcome::Yes;
        for (Condition { source, test, .. }, number) in
            conditions.on_values.iter().zip(&candidate.sources)
        {
            if self.ignores_headers && source.is_of_headers() {
                continue;
            }
            outcome = outcome.min(test.outcome(values.get(*number)));
            if outcome == Outcome::No {
                break;
            }
        }
        outcome
    }
}
