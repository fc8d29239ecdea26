//! The two doors into a process, on programs of many kinds: what they trace, leave alone, tell and put back.

mod complete;
mod function_changes;
mod function_go;
mod function_programs;
mod function_refusals;
mod function_spans;
mod function_types;
mod functions;
mod hostile_files;
mod kernel_door;
mod ordinary_user;
mod panics;
mod thousand_functions;
mod tracing;
mod tracing_beside_others;
mod untold;
mod user_door;
mod user_door_behind;
mod user_door_hijack;
mod user_door_hostile;
mod user_door_libraries;
mod user_door_life;
mod user_door_programs;
mod user_door_real;
mod user_door_refusals;
mod user_door_relocate;
