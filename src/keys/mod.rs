//! The key store: clients and their API keys beside those of `gateway.toml`, in Redis or in a file,
//! changed by the admin API while the gateway runs.
//!
//! Reading order: [`record`] (what is stored of a client), [`secret`] (new API keys), [`changes`]
//! (which changes a gateway has seen), [`cache`] (records in this process), [`shared`] (records in
//! Redis, by `lua/keys.lua`), [`file`] (records in a file), [`kept`] (one of both), [`edit`]
//! (changes by an operator), [`own_rotation`] (clients that replace their own keys), [`store`]
//! (look-ups by requests), [`uses`] (which clients have sent requests), [`follow`] (the task that
//! looks up and follows changes).
//!
//! A request finds its key in the cache, or waits for the next call of the task, which has the
//! look-ups of all requests that wait. Each change of a record has a number and the digests that it
//! is about: the task reads new changes four times a second, and removes those digests from the
//! cache. If a change may have been missed, it empties the cache.

pub mod cache;
pub mod changes;
pub mod edit;
pub mod file;
pub mod follow;
pub mod kept;
pub mod own_rotation;
pub mod record;
pub mod secret;
pub mod shared;
pub mod store;
pub mod uses;
