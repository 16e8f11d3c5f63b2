//! The repository itself: layers of the source, the container file, and files that docs name.

mod assets;
mod layering;
mod links;
mod packaging;
mod where_to_add;
