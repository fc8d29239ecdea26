//! The macros that fire a probe without a declaration.

/// Fires a probe: `probe!(provider, name, arguments...)`.
///
/// The arguments are evaluated whether or not anybody traces; the probe itself is two `nop` instructions. Up to 12
/// arguments of any type that is an [`Arg`](crate::Arg). An argument that is a variable gives its name to the trace;
/// `name = value` names any other.
///
/// ```
/// let (id, key) = (7, "user:1");
/// nopal::probe!(cache, lookup, id, key, depth = 1 + 2);
/// nopal::probe!(cache, flush);
/// nopal::probe!("my-cache", "flush-all");
/// ```
///
/// A string or slice takes two of the 12 operands that tracers read, address and length:
///
/// ```compile_fail
/// let s = "seven strings";
/// nopal::probe!(cache, too_many, s, s, s, s, s, s, s);
/// ```
#[macro_export]
macro_rules! probe {
    ($provider:tt, $name:tt $(, $($args:tt)*)?) => {
        $crate::__args!(plain $provider $name [] $($($args)*)?)
    };
}

/// Fires a probe if somebody traces it, and evaluates the arguments only then.
///
/// What nobody traces costs a compare and a branch that is not taken. Takes what [`probe!`](crate::probe) takes.
///
/// ```
/// # fn describe() -> String { unreachable!("nobody traces this test") }
/// nopal::probe_lazy!(cache, evict, what = describe().as_str());
/// ```
#[macro_export]
macro_rules! probe_lazy {
    ($provider:tt, $name:tt $(, $($args:tt)*)?) => {
        if $crate::enabled!($provider, $name) {
            $crate::__args!(guarded $provider $name [] $($($args)*)?)
        }
    };
}

/// Whether somebody traces a probe that [`probe_lazy!`](crate::probe_lazy) fires somewhere in the same program or
/// library.
///
/// ```
/// if nopal::enabled!(cache, evict) {
///     let report = format!("{:?}", std::time::SystemTime::now());
///     nopal::probe_lazy!(cache, evict, report.as_str());
/// }
/// ```
#[macro_export]
macro_rules! enabled {
    ($provider:tt, $name:tt) => {
        $crate::__is_enabled!($provider $name)
    };
}

/// Reads the arguments of a probe into `{[name, type, docs, labels] value}`.
#[doc(hidden)]
#[macro_export]
macro_rules! __args {
    ($guard:ident $provider:tt $name:tt [$($done:tt)*] $arg:ident $(, $($rest:tt)*)?) => {
        $crate::__args!($guard $provider $name [$($done)* {[stringify!($arg), "", &[], &[]] $arg}] $($($rest)*)?)
    };
    ($guard:ident $provider:tt $name:tt [$($done:tt)*] $arg:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__args!($guard $provider $name [$($done)* {[stringify!($arg), "", &[], &[]] $value}] $($($rest)*)?)
    };
    ($guard:ident $provider:tt $name:tt [$($done:tt)*] $value:expr $(, $($rest:tt)*)?) => {
        $crate::__args!($guard $provider $name [$($done)* {["", "", &[], &[]] $value}] $($($rest)*)?)
    };
    ($guard:ident $provider:tt $name:tt [$({$description:tt $value:expr})*]) => {{
        $crate::__fire!(__nopal_fire $guard short $provider $name [&[], None, None] [$($description)*]);
        __nopal_fire($($value),*)
    }};
}
