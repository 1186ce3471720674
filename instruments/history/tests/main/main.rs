//! Integration tests of the recorder, the checker and the map checks, in one program.

mod known_checker;
mod maps;
mod wrong_histories;
