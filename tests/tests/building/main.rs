//! What programs are built with: `dtrace`, the headers, the runtime, bindings for Rust, Python, Ruby and LTTng's users.

mod bindings_python;
mod bindings_ruby;
mod dist;
mod dtrace_command;
mod dtrace_memcached;
mod dtrace_projects;
mod dtrace_results;
mod headers;
mod headers_cost;
mod headers_surface;
mod lttng_gen_tp;
mod lttng_headers;
mod lttng_linking;
mod other_debians;
mod runtime;
mod runtime_arm64;
mod runtime_cost;
mod runtime_stapsdt;
mod rust_probes;
mod rust_probes_arm64;
mod rust_probes_cost;
mod rust_probes_live;
mod unit_tests;
