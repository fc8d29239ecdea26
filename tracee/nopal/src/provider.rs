//! `provider!`: probes with a declaration, whose arguments have names, types and docs.

/// Declares a provider: a module with one function per probe.
///
/// ```
/// nopal::provider! {
///     /// Probes of the command loop.
///     pub mod redis {
///         /// A command is about to run.
///         #[ended_by(call__end)]
///         probe call__start(
///             /// The client's number.
///             client: u64,
///             /// Name of the command.
///             name: &str,
///         );
///
///         /// The command has run.
///         #[started_by(call__start)]
///         probe call__end(
///             client: u64,
///             name: &str,
///             /// How it ended.
///             #[labels(0 = "ok", -1 = "error")]
///             result: i32,
///         );
///
///         /// Under another name in the trace than in Rust.
///         probe expire_cycle as "expire__cycle"(keys: u32, seconds: f64);
///
///         /// Always there, cannot be asked whether somebody traces it.
///         #[plain]
///         probe tick();
///     }
/// }
///
/// // The usual way. Nobody traces: a compare and a branch that is not taken.
/// redis::call__start(7, "GET");
///
/// // Arguments that cost something are made only when somebody traces.
/// redis::call__end::lazy(|probe| {
///     let name = String::from("GET");
///     probe.fire(7, &name, 0)
/// });
///
/// // Or ask.
/// if redis::expire_cycle::is_enabled() {
///     redis::expire_cycle(20, 0.5);
/// }
/// redis::tick();
/// ```
///
/// Each probe `p` is:
///
/// | | |
/// |---|---|
/// | `p(arguments)` | fires it if somebody traces it |
/// | `p::lazy(\|probe\| probe.fire(arguments))` | runs the closure only if somebody traces it |
/// | `p::is_enabled()` | whether somebody traces it |
///
/// A probe declared `#[plain]` has no semaphore: the function is the `nop`s alone, and its arguments are always
/// evaluated. Use it where they are at hand anyway.
///
/// Names, types and doc comments are in the file's `.note.nopal`, so `nopal list` and `nopal trace` show them.
/// `#[labels(0 = "miss", 1 = "hit")]` before an argument names its values.
/// `#[ended_by(other)]` and `#[started_by(other)]` tell tracers which probe is the other end of a span;
/// `#[log_level(6)]` gives the probe an LTTng log level. `mod name as "provider"` and `probe name as "probe"` set the
/// names in the trace where they are not Rust names.
///
/// The types in a declaration are those that are in scope around the macro. Each must be an [`Arg`](crate::Arg):
///
/// ```compile_fail,E0277
/// nopal::provider! {
///     mod server {
///         probe sent(bytes: i128);
///     }
/// }
/// ```
#[macro_export]
macro_rules! provider {
    ($(#[$attribute:meta])* $vis:vis mod $module:ident { $($probes:tt)* }) => {
        $crate::provider!(@module [$(#[$attribute])* $vis] $module $module [$($probes)*]);
    };
    ($(#[$attribute:meta])* $vis:vis mod $module:ident as $provider:literal { $($probes:tt)* }) => {
        $crate::provider!(@module [$(#[$attribute])* $vis] $module $provider [$($probes)*]);
    };
    (@module [$($head:tt)*] $module:ident $provider:tt [$($probes:tt)*]) => {
        $($head)* mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::__probes! { $provider $($probes)* }
        }
    };
}

/// Takes the probes of a declaration apart, all at once: a macro that read one after the other would soon reach the
/// compiler's recursion limit.
#[doc(hidden)]
#[macro_export]
macro_rules! __probes {
    ($provider:tt
        $($(#[$($attribute:tt)*])* probe $function:ident $(as $name:literal)? ($($args:tt)*);)*
    ) => {
        $($crate::__probe! {
            $provider $function [$($name)?] ($($args)*) [] [None] [None] guarded $(#[$($attribute)*])*
        })*
    };
    ($provider:tt $($probes:tt)*) => {
        compile_error!(concat!(
            "expected probes, each as `probe name(argument: Type, ...);` or `probe name as \"name\"(...);`, in: ",
            stringify!($($probes)*)
        ));
    };
}

/// Reads what stands before a probe: docs, pair, log level and guard.
#[doc(hidden)]
#[macro_export]
macro_rules! __probe {
    ($provider:tt $function:ident $name:tt $args:tt [$($doc:tt)*] $pair:tt $level:tt $guard:ident
        #[doc = $line:expr] $($rest:tt)*
    ) => {
        $crate::__probe! {
            $provider $function $name $args [$($doc)* [$line]] $pair $level $guard $($rest)*
        }
    };
    ($provider:tt $function:ident $name:tt $args:tt $doc:tt $pair:tt $level:tt $guard:ident
        #[ended_by($partner:tt)] $($rest:tt)*
    ) => {
        $crate::__probe! {
            $provider $function $name $args $doc
            [Some($crate::__private::Pair::Start($crate::__text!($partner)))] $level $guard $($rest)*
        }
    };
    ($provider:tt $function:ident $name:tt $args:tt $doc:tt $pair:tt $level:tt $guard:ident
        #[started_by($partner:tt)] $($rest:tt)*
    ) => {
        $crate::__probe! {
            $provider $function $name $args $doc
            [Some($crate::__private::Pair::End($crate::__text!($partner)))] $level $guard $($rest)*
        }
    };
    ($provider:tt $function:ident $name:tt $args:tt $doc:tt $pair:tt $level:tt $guard:ident
        #[log_level($value:expr)] $($rest:tt)*
    ) => {
        $crate::__probe! { $provider $function $name $args $doc $pair [Some($value)] $guard $($rest)* }
    };
    ($provider:tt $function:ident $name:tt $args:tt $doc:tt $pair:tt $level:tt $guard:ident
        #[plain] $($rest:tt)*
    ) => {
        $crate::__probe! { $provider $function $name $args $doc $pair $level plain $($rest)* }
    };
    ($provider:tt $function:ident [] $args:tt $doc:tt $pair:tt $level:tt $guard:ident) => {
        $crate::__declared!($guard $provider $function $function $doc $pair $level $args);
    };
    ($provider:tt $function:ident [$name:literal] $args:tt $doc:tt $pair:tt $level:tt $guard:ident) => {
        $crate::__declared!($guard $provider $name $function $doc $pair $level $args);
    };
    ($provider:tt $function:ident $name:tt $args:tt $doc:tt $pair:tt $level:tt $guard:ident $($rest:tt)*) => {
        compile_error!(concat!(
            "before `probe ", stringify!($function), "`: expected docs, `#[plain]`, `#[ended_by(probe)]`, ",
            "`#[started_by(probe)]` or `#[log_level(number)]`, found ", stringify!($($rest)*)
        ));
    };
}

/// The function of one declared probe and, if it has a semaphore, the type of the same name.
#[doc(hidden)]
#[macro_export]
macro_rules! __declared {
    (guarded $provider:tt $name:tt $function:ident [$([$doc:expr])*] [$pair:expr] [$level:expr]
        ($($(#[doc = $arg_doc:expr])* $(#[labels($($value:literal = $label:literal),* $(,)?)])?
            $arg:ident: $type:ty),* $(,)?)
    ) => {
        $(#[doc = $doc])*
        #[doc = ""]
        #[doc = concat!("Fires the probe `", $crate::__text!($provider), ":", $crate::__text!($name),
            "` if somebody traces it.")]
        #[doc = ""]
        $(#[doc = concat!("- `", stringify!($arg), "`:", $($arg_doc),*)])*
        #[inline(always)]
        #[allow(non_snake_case, dead_code, clippy::too_many_arguments)]
        pub fn $function($($arg: $type),*) {
            if $function::is_enabled() {
                $function { _enabled: () }.fire($($arg),*)
            }
        }

        #[doc = concat!("The probe `", $crate::__text!($provider), ":", $crate::__text!($name),
            "`, known to be traced at this moment.")]
        #[allow(non_camel_case_types, dead_code)]
        #[derive(Debug)]
        pub struct $function {
            _enabled: (),
        }

        #[allow(dead_code)]
        impl $function {
            /// Whether somebody traces the probe.
            #[inline(always)]
            pub fn is_enabled() -> bool {
                $crate::__is_enabled!($provider $name)
            }

            /// Runs `traced` if somebody traces the probe; it is to call [`fire`](Self::fire).
            #[inline(always)]
            pub fn lazy(traced: impl FnOnce(Self)) {
                if Self::is_enabled() {
                    traced($function { _enabled: () })
                }
            }

            /// Fires the probe.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub fn fire(self, $($arg: $type),*) {
                $crate::__fire!(__nopal_fire guarded long $provider $name [&[$($doc),*], $pair, $level]
                    [$([stringify!($arg), stringify!($type), &[$($arg_doc),*], &[$($(($value, $label)),*)?]])*]);
                __nopal_fire($($arg),*)
            }
        }
    };
    (plain $provider:tt $name:tt $function:ident [$([$doc:expr])*] [$pair:expr] [$level:expr]
        ($($(#[doc = $arg_doc:expr])* $(#[labels($($value:literal = $label:literal),* $(,)?)])?
            $arg:ident: $type:ty),* $(,)?)
    ) => {
        $(#[doc = $doc])*
        #[doc = ""]
        #[doc = concat!("Fires the probe `", $crate::__text!($provider), ":", $crate::__text!($name), "`.")]
        #[doc = ""]
        $(#[doc = concat!("- `", stringify!($arg), "`:", $($arg_doc),*)])*
        #[inline(always)]
        #[allow(non_snake_case, dead_code, clippy::too_many_arguments)]
        pub fn $function($($arg: $type),*) {
            $crate::__fire!(__nopal_fire plain long $provider $name [&[$($doc),*], $pair, $level]
                [$([stringify!($arg), stringify!($type), &[$($arg_doc),*], &[$($(($value, $label)),*)?]])*]);
            __nopal_fire($($arg),*)
        }
    };
    ($guard:ident $provider:tt $name:tt $function:ident $doc:tt $pair:tt $level:tt $args:tt) => {
        compile_error!(concat!(
            "expected `(argument: Type, ...)` after `probe ", stringify!($function), "`, found `",
            stringify!($args), "`"
        ));
    };
}
