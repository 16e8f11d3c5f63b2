//! The repository itself: layers of the source, the container file, and files that docs name.

mod assets;
mod circles;
mod fuzz;
mod layering;
mod links;
mod packaging;
mod source;
mod where_to_add;
