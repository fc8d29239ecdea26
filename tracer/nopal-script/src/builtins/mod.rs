//! The functions and variables of the language, one file for each group.
