//! Sites and guards for arm64: assembler text only. What goes into the notes is in `site.rs`.

/// Defines the function `$fire`, which is one site of a probe: a `nop` and the stapsdt note.
///
/// One nop is enough here: instructions have four bytes, so a tracer replaces it with a branch in one store, and
/// kernels do not treat it in any special way.
#[doc(hidden)]
#[macro_export]
macro_rules! __define_site {
    // With 31 registers every argument fits; values of up to 32 bits need no widening in an `x` register, because
    // tracers look at as many bits as the operand's size says.
    (direct $fire:ident $guard:ident $provider:tt $name:tt $description:tt
        $(($A:ident $a:ident $n:ident $w:ident $l:ident $s:ident $h:ident $x:ident $index:literal $blank:literal))*
    ) => {
        #[inline(always)]
        #[allow(named_asm_labels)]
        fn $fire<$($A: $crate::Arg),*>($($a: $A),*) {
            $crate::__describe!($provider $name $description);
            // SAFETY: the code is a nop; everything else goes into sections that the program does not look at.
            unsafe {
                $crate::__private::asm!(
                    "990: nop",
                    $crate::__stapsdt_begin!($guard $provider $name),
                    $(concat!(
                        ".if {", stringify!($x), "}\n",
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($w), "}\"\n",
                        ".else\n",
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($n), ":x}\"\n",
                        ".endif\n",
                        ".if {", stringify!($h), "}\n",
                        ".ascii \" 8@{", stringify!($l), "}\"\n",
                        ".endif"
                    ),)*
                    $crate::__stapsdt_end!($guard $provider $name),
                    $(
                        $n = in(reg) $crate::__private::narrow($a),
                        $w = in(reg) $crate::__private::wide($a),
                        $l = in(reg) $crate::__private::length($a),
                        $s = const $crate::__private::shape::<$A>().operand_size(),
                        $h = const $crate::__private::shape::<$A>().has_length as u8,
                        $x = const ($crate::__private::shape::<$A>().size_bytes == 8) as u8,
                    )*
                    options(readonly, nostack, preserves_flags)
                )
            }
        }
    };
    // Values and lengths: 24 of 31 registers at most.
    (block $fire:ident $guard:ident $provider:tt $name:tt $description:tt
        $(($A:ident $a:ident $n:ident $w:ident $l:ident $s:ident $h:ident $x:ident $index:literal $blank:literal))*
    ) => {
        #[inline(always)]
        #[allow(named_asm_labels, clippy::too_many_arguments)]
        fn $fire<$($A: $crate::Arg),*>($($a: $A),*) {
            $crate::__describe!($provider $name $description);
            // SAFETY: the code is a nop; everything else goes into sections that the program does not look at.
            unsafe {
                $crate::__private::asm!(
                    "990: nop",
                    $crate::__stapsdt_begin!($guard $provider $name),
                    $(concat!(
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($w), "}\"\n",
                        ".if {", stringify!($h), "}\n",
                        ".ascii \" 8@{", stringify!($l), "}\"\n",
                        ".endif"
                    ),)*
                    $crate::__stapsdt_end!($guard $provider $name),
                    $(
                        $w = in(reg) $crate::__private::wide($a),
                        $l = in(reg) $crate::__private::length($a),
                        $s = const $crate::__private::shape::<$A>().operand_size(),
                        $h = const $crate::__private::shape::<$A>().has_length as u8,
                    )*
                    options(readonly, nostack, preserves_flags)
                )
            }
        }
    };
}

/// Whether somebody traces the probe, as a `bool` that optimised code never makes: the asm jumps, and the jump is the
/// branch of the `if` around it.
#[doc(hidden)]
#[macro_export]
macro_rules! __is_enabled {
    ($provider:tt $name:tt) => {{
        #[inline(always)]
        #[allow(named_asm_labels)]
        fn __nopal_is_enabled() -> bool {
            // SAFETY: reads the probe's semaphore, which the same text defines, into a register given up for it.
            unsafe {
                $crate::__private::asm!(
                    $crate::__semaphore!(guarded $provider $name),
                    concat!("adrp x16, ", $crate::__semaphore_symbol!($provider $name)),
                    concat!("ldrh w16, [x16, :lo12:", $crate::__semaphore_symbol!($provider $name), "]"),
                    "cbnz w16, {enabled}",
                    enabled = label {
                        $crate::__private::cold_path();
                        return true;
                    },
                    out("x16") _,
                    options(readonly, nostack, preserves_flags)
                )
            }
            false
        }
        __nopal_is_enabled()
    }};
}
