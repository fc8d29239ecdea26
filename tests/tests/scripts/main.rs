//! `nopal run`: scripts by each door, beside bpftrace, and the tools that are scripts.

mod language_examples;
mod newer;
mod published_tools;
mod run_bounds;
mod run_cells;
mod run_differential;
mod run_doors;
mod run_kernel;
mod run_points;
mod run_tools;
mod run_user;
mod shim;
mod shim_checks;
mod shim_list;
mod shim_old;
mod source_lines;
mod stacks;
mod tools_agree;
