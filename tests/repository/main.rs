//! The repository itself: layers of the source and the container file.

mod layering;
mod packaging;
