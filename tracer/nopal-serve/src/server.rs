//! The loop: takes hits, answers scrapes, sends metrics, reads its file again.

use crate::config::Config;
use crate::exposition::{Form, render};
use crate::http::{Listener, Request};
use crate::otlp;
use crate::push::{Place, Push};
use crate::target::Target;
use nopal_spans::Span;
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long to wait for a scrape when nothing comes, at first and at most: rings hold what comes meanwhile.
const LEAST_WAIT: Duration = Duration::from_millis(5);
const MOST_WAIT: Duration = Duration::from_millis(100);

/// What each target of a configuration is made of, beside its own words: spans that a file declares, and providers.
pub type Files = (Vec<Span>, Vec<nopal_provider::File>);

#[derive(Debug)]
pub enum ServeError {
    Listen { address: String, error: String },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

pub struct Server {
    http: Listener,
    config: Config,
    targets: Vec<Target>,
    push: Option<(Push, Instant)>,
    start_ns: i64,
    wait: Duration,
    n_scrapes: u64,
    /// Why the file could not be read again.
    pub problem: Option<String>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.config).field("targets", &self.targets).finish()
    }
}

fn epoch_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

fn push_of(config: &Config) -> Option<(Push, Instant)> {
    let place = Place::parse(&config.otlp.as_ref()?.endpoint)?;
    Some((Push::new(place), Instant::now()))
}

impl Server {
    /// `files` has an entry for each target.
    pub fn new(config: Config, files: Vec<Files>) -> Result<Server, ServeError> {
        let http = Listener::open(config.listen).map_err(|error| ServeError::Listen {
            address: config.listen.to_string(),
            error: error.to_string(),
        })?;
        let targets = config.targets.iter().cloned().zip(files);
        Ok(Server {
            http,
            targets: targets.map(|(target, (spans, given))| Target::new(target, spans, given)).collect(),
            push: push_of(&config),
            config,
            start_ns: epoch_ns(),
            wait: LEAST_WAIT,
            n_scrapes: 0,
            problem: None,
        })
    }

    /// Where it listens; a port of 0 has become one that was free.
    pub fn address(&self) -> String {
        self.http.address().to_string()
    }

    /// Takes hits, and waits a moment for scrapes if there were none.
    pub fn round(&mut self, is_stopped: fn() -> bool) {
        let n_hits: u64 = self.targets.iter_mut().map(|target| target.round(is_stopped)).sum();
        self.push();
        self.wait = if n_hits > 0 { LEAST_WAIT } else { (self.wait * 2).min(MOST_WAIT) };
        if let Some(request) = self.http.next(self.wait) {
            self.answer(request);
        }
    }

    fn push(&mut self) {
        let Some(otlp) = &self.config.otlp else { return };
        let Some((push, due)) = &mut self.push else { return };
        if push.is_busy() || Instant::now() < *due {
            return;
        }
        *due = Instant::now() + Duration::from_secs(otlp.every_s.max(1));
        let body = otlp::request(&mut self.targets, self.start_ns, epoch_ns());
        push.send(body.to_string().into_bytes());
    }

    /// Follows another configuration: targets that are the same go on, with their numbers. Where it listens stays. Gives
    /// what could not be put back in processes that were left.
    pub fn reload(&mut self, config: Config, files: Vec<Files>) -> Vec<String> {
        let mut before = std::mem::take(&mut self.targets);
        for (target, (spans, given)) in config.targets.iter().cloned().zip(files) {
            let same = before.iter().position(|old| old.config == target);
            let next = match same {
                Some(at) => before.swap_remove(at),
                None => Target::new(target, spans, given),
            };
            self.targets.push(next);
        }
        self.problem = (config.listen != self.config.listen)
            .then(|| format!("it goes on listening on {}; start it anew to change that", self.address()));
        if config.otlp != self.config.otlp {
            self.push = push_of(&config);
        }
        self.config = config;
        before.iter_mut().flat_map(Target::close).collect()
    }

    fn answer(&mut self, request: Request) {
        let (status, content_type, body) = match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => {
                self.n_scrapes += 1;
                let form = if request.wants_open_metrics { Form::OpenMetrics } else { Form::Prometheus };
                (200, form.content_type(), render(&mut self.targets, form))
            }
            ("GET" | "HEAD", "/health") => (200, "application/json", format!("{}\n", self.health())),
            ("GET" | "HEAD", "/") => (200, "text/html; charset=utf-8", self.page()),
            ("GET" | "HEAD", _) => (404, "text/plain", "there are /metrics and /health\n".to_owned()),
            _ => (405, "text/plain", "only GET\n".to_owned()),
        };
        request.answer(status, content_type, &body);
    }

    fn health(&self) -> Value {
        let of = |target: &Target| {
            let state = &target.state;
            json!({
                "target": target.config.label(),
                "processes": state.n_processes,
                "seen": state.n_seen,
                "events": target.n_events(),
                "lost": state.verdict.n_all_lost(),
                "gaps": state.verdict.n_gaps,
                "late": state.verdict.n_late,
                "folded": target.n_folded(),
                "complete": state.verdict.is_complete(),
                "problem": state.problem,
            })
        };
        let push = self.push.as_ref().map(
            |(push, _)| json!({ "sent": push.n_sent, "failed": push.n_failed, "problem": push.problem }),
        );
        let problems = self.targets.iter().filter_map(|target| target.state.problem.as_ref());
        let is_fine = problems.chain(&self.problem).next().is_none();
        json!({
            "status": if is_fine { "ok" } else { "problem" },
            "problem": self.problem,
            "scrapes": self.n_scrapes,
            "targets": self.targets.iter().map(of).collect::<Vec<_>>(),
            "otlp": push,
        })
    }

    /// The same for people.
    fn page(&self) -> String {
        let health = serde_json::to_string_pretty(&self.health()).unwrap_or_default();
        let health = health.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><meta charset=utf-8><title>nopal serve</title><h1>nopal serve</h1>\n\
             <p><a href=/metrics>/metrics</a> for Prometheus, <a href=/health>/health</a> as JSON</p><pre>{health}</pre>\n"
        )
    }

    /// Leaves all processes. Gives what could not be put back.
    pub fn close(&mut self) -> Vec<String> {
        self.targets.iter_mut().flat_map(Target::close).collect()
    }
}
