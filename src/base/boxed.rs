//! Methods of traits of Pingora that return futures.
//!
//! These traits are written with `async_trait`, whose methods have where clauses. In a method with
//! them, the compiler proves anew for each type within a future, and for `self`, that it can be
//! sent between threads: one to seven seconds for each method of this program. In a function
//! without them, it knows what it has proven for another one.

use futures_util::future::BoxFuture;

/// Writes a method with the signature that `async_trait` gives it. Its body returns a boxed future.
macro_rules! boxed {
    (fn $name:ident<$($life:lifetime),+>($($argument:tt)*) -> $output:ty $body:block) => {
        fn $name<$($life,)+ 'async_trait>(
            $($argument)*
        ) -> futures_util::future::BoxFuture<'async_trait, $output>
        where
            $($life: 'async_trait,)+
            Self: 'async_trait,
        $body
    };
}

pub(crate) use boxed;

/// The future of a method that waits for nothing.
pub(crate) fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}
