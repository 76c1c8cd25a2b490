//! What is told of typical requests.
