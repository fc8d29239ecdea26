//! Everywhere else: the macros check the types of their arguments, and no site is left in the code.

#[doc(hidden)]
#[macro_export]
macro_rules! __define_site {
    ($how:ident $fire:ident $guard:ident $provider:tt $name:tt $description:tt
        $(($A:ident $a:ident $($slot:tt)*))*
    ) => {
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        fn $fire<$($A: $crate::Arg),*>($($a: $A),*) {
            $crate::__describe!(@check $provider $name $description);
            $(let _ = $a;)*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __is_enabled {
    ($provider:tt $name:tt) => {
        false
    };
}
