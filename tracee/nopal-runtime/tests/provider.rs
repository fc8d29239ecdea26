//! Providers and probes in Rust, as far as one process can see them: tracers are in the tests of the whole project.

use nopal_runtime::{Argument, Error, Probe, Provider, Type};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU16, Ordering};

/// Does what a tracer does to be heard.
fn raise(semaphore: *const u16, by: u16) {
    assert!(!semaphore.is_null());
    // SAFETY: the semaphore of a loaded probe, which is writable memory; all access to it is atomic.
    unsafe { &*semaphore.cast::<AtomicU16>() }.fetch_add(by, Ordering::Relaxed);
}

#[test]
fn fires_while_a_semaphore_is_raised() {
    let app = Provider::new("app").unwrap();
    type Kinds = (i32, &'static str, &'static [u8], &'static CStr, f32, f64, bool);
    let probe: Probe<Kinds> = app.probe("one", ["a", "b", "c", "d", "e", "f", "g"]).unwrap();
    let values = || (-1, "text", &b"bytes"[..], c"c", 1.5, 2.5, true);
    assert!(!probe.is_enabled() && !probe.fire(values()), "not loaded");
    app.load().unwrap();
    assert!(!probe.is_enabled() && !probe.fire(values()), "nobody listens");
    assert!(!probe.fire_with(|| unreachable!("nobody listens")));
    raise(probe.any().semaphore(), 1);
    assert!(probe.is_enabled() && probe.fire(values()) && probe.clone().fire_with(values));
    raise(probe.any().semaphore(), u16::MAX);
    assert!(!probe.is_enabled());
    raise(probe.any().semaphore(), 1);
    app.unload();
    assert!(!probe.is_enabled() && !probe.fire(values()), "unloaded");
    app.load().unwrap();
    assert!(!probe.is_enabled(), "the semaphore begins at zero again");
}

#[test]
fn types_have_their_operands() {
    let app = Provider::new("app").unwrap();
    let types = |probe: &nopal_runtime::AnyProbe| {
        probe.arguments().iter().map(|a| (a.name.clone(), a.type_)).collect::<Vec<_>>()
    };
    let named = |list: &[(&str, Type)]| list.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect::<Vec<_>>();
    let probe = app.probe::<(u8, i64, &str)>("a", ["x", "y", "z"]).unwrap();
    assert_eq!(types(probe.any()), named(&[("x", Type::Uint8), ("y", Type::Int64), ("z", Type::Text)]));
    let probe = app.probe::<(&[u8], f64)>("b", ["x", "y"]).unwrap();
    assert_eq!(types(probe.any()), named(&[("x", Type::Bytes), ("y", Type::Double)]));
    let probe = app.probe::<()>("c", []).unwrap();
    assert_eq!(types(probe.any()), []);
    app.load().unwrap();
    raise(probe.any().semaphore(), 1);
    assert!(probe.fire(()));
}

#[test]
fn probes_stay_where_they_are_and_outlive_their_provider() {
    let app = Provider::new("app").unwrap();
    let first = app.probe::<(u64,)>("p0", ["n"]).unwrap();
    app.load().unwrap();
    let place = first.any().site();
    let mut sites = vec![place];
    for i in 1..40 {
        let probe = app.probe::<(u64,)>(&format!("p{i}"), ["n"]).unwrap();
        app.load().unwrap();
        sites.push(probe.any().site());
    }
    app.unload();
    app.load().unwrap();
    assert_eq!(first.any().site(), place);
    sites.sort_unstable();
    sites.dedup();
    assert_eq!(sites.len(), 40);
    let path = app.path().unwrap();
    assert!(std::fs::metadata(&path).is_ok(), "{path}");
    drop(app);
    raise(first.any().semaphore(), 1);
    assert!(first.fire((7,)), "the probe keeps what it needs");
    drop(first);
    assert!(std::fs::metadata(&path).is_err(), "{path} is closed with the last of them");
}

#[test]
fn what_cannot_be_is_refused() {
    let name = |name: &str| Err::<(), _>(Error::Name { name: name.to_owned() });
    for bad in ["", "a b", "a:b", "a\nb", "a\0b"] {
        assert_eq!(Provider::new(bad).map(drop), name(bad));
    }
    let app = Provider::new("app").unwrap();
    assert_eq!(app.probe::<(u8,)>("ok", ["not ok"]).map(drop), name("not ok"));
    app.probe::<()>("ok", []).unwrap();
    let taken = Error::Taken { provider: "app".into(), name: "ok".into() };
    assert_eq!(app.probe::<()>("ok", []).map(drop), Err(taken));
    let many = (0..7).map(|i| Argument::new(format!("a{i}"), Type::Bytes)).collect();
    let too_many = Error::TooManyOperands { probe: "many".into(), n_operands: 14 };
    assert_eq!(app.add("many", many).map(drop), Err(too_many));
}
