//! The server and the load of the demo, each a process of its own: this program, started again.

use super::address;
use crate::failure::Failure;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// What a process of the demo is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    Server,
    Load,
}

/// The child's side. The server says its port in one line on standard output, or why there is none; the load says
/// that the server is full of data.
pub(super) fn run(role: Role, port: u16, max_bytes: usize) -> Result<(), Failure> {
    nopal_demo::end_with_standard_input();
    let ended = match role {
        Role::Server => {
            let bound = nopal_demo::Server::bind(port, max_bytes);
            match bound.and_then(|server| server.address().map(|address| (server, address.port()))) {
                Ok((server, port)) => {
                    anstream::println!("port {port}");
                    server.run()
                }
                Err(error) => {
                    anstream::println!("error {error}");
                    return Ok(());
                }
            }
        }
        Role::Load => nopal_demo::run_load(address(port), || anstream::println!("full")),
    };
    ended.map_err(|error| Failure::new("demo", error.to_string()))
}

/// A process of the demo, ended when dropped. It also ends when this process does, because its standard input then does.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// The server, ready for requests, and its port.
    pub(super) fn server(port: u16) -> Result<(Running, u16), Failure> {
        let (running, line) = Running::start("server", port)?;
        if let Some(port) = line.strip_prefix("port ").and_then(|digits| digits.parse().ok()) {
            return Ok((running, port));
        }
        let why = line.strip_prefix("error ").unwrap_or("it ended at once");
        let failure =
            Failure::new("demo-server", format!("the demo server cannot listen on port {port}: {why}"));
        Err(failure.hint("choose another port; 0 takes any that is free"))
    }

    /// The clients, at work on a server that they have filled with data.
    pub(super) fn load(port: u16) -> Result<Running, Failure> {
        let (running, line) = Running::start("load", port)?;
        match line.as_str() {
            "full" => Ok(running),
            _ => Err(Failure::new("demo-load", "the clients of the demo ended at once")),
        }
    }

    /// Starts this program again, and waits for the line with which the child says that it is ready.
    fn start(role: &str, port: u16) -> Result<(Running, String), Failure> {
        let start = || -> io::Result<Child> {
            Command::new(std::env::current_exe()?)
                .args(["demo", "--child", role, "--port", &port.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // The load's server goes away first at the end, which is nothing to tell.
                .stderr(if role == "load" { Stdio::null() } else { Stdio::inherit() })
                // Ctrl-C in the terminal is for the tour, which then ends these in its own order.
                .process_group(0)
                .spawn()
        };
        let started = start().map(Running);
        let mut running = started
            .map_err(|error| Failure::new("demo", format!("cannot start the {role} of the demo: {error}")))?;
        let mut line = String::new();
        if let Some(stdout) = running.0.stdout.take() {
            // A child that cannot even say a line is treated as one that said nothing.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        line.truncate(line.trim_end().len());
        Ok((running, line))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
