//! Sites and guards for x86-64: assembler text only. What goes into the notes is in `site.rs`.

/// Defines the function `$fire`, which is one site of a probe: `nop`, 10-byte nop and the stapsdt note.
///
/// The first nop belongs to kernel, gdb and perf; the second is where the user door goes in. Never a 5-byte nop: some
/// kernels overwrite it with a call, which destroys the red zone below the stack pointer.
#[doc(hidden)]
#[macro_export]
macro_rules! __define_site {
    // Every word of every argument in a register of its own. A 32-bit value is not widened, which could take a move.
    (direct $fire:ident $guard:ident $provider:tt $name:tt $description:tt
        $(($A:ident $a:ident $n:ident $w:ident $l:ident $s:ident $h:ident $x:ident $index:literal $blank:literal))*
    ) => {
        #[inline(always)]
        #[allow(named_asm_labels)]
        fn $fire<$($A: $crate::Arg),*>($($a: $A),*) {
            $crate::__describe!($provider $name $description);
            // SAFETY: the code is two nops; everything else goes into sections that the program does not look at.
            unsafe {
                $crate::__private::asm!(
                    "990: nop",
                    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
                    $crate::__stapsdt_begin!($guard $provider $name),
                    $(concat!(
                        ".if {", stringify!($x), "}\n",
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($w), "}\"\n",
                        ".else\n",
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($n), ":r}\"\n",
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
                    options(att_syntax, readonly, nostack, preserves_flags)
                )
            }
        }
    };
    // Values in registers, lengths in a block on the stack: unoptimised code needs a register for each operand, and
    // there are 14.
    (block $fire:ident $guard:ident $provider:tt $name:tt $description:tt
        $(($A:ident $a:ident $n:ident $w:ident $l:ident $s:ident $h:ident $x:ident $index:literal $blank:literal))*
    ) => {
        #[inline(always)]
        #[allow(named_asm_labels, clippy::too_many_arguments)]
        fn $fire<$($A: $crate::Arg),*>($($a: $A),*) {
            $crate::__describe!($provider $name $description);
            let lengths = [$($crate::__private::length($a)),*];
            let lengths = $crate::__private::block(
                &lengths,
                false $(|| const { $crate::__private::shape::<$A>().has_length })*,
            );
            // SAFETY: the code is two nops; everything else goes into sections that the program does not look at.
            unsafe {
                $crate::__private::asm!(
                    "990: nop",
                    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
                    $crate::__stapsdt_begin!($guard $provider $name),
                    $(concat!(
                        ".ascii \"", $blank, "{", stringify!($s), "}@{", stringify!($w), "}\"\n",
                        ".if {", stringify!($h), "}\n",
                        ".ascii \" 8@", $index, "({lengths})\"\n",
                        ".endif"
                    ),)*
                    $crate::__stapsdt_end!($guard $provider $name),
                    $(
                        $w = in(reg) $crate::__private::wide($a),
                        $s = const $crate::__private::shape::<$A>().operand_size(),
                        $h = const $crate::__private::shape::<$A>().has_length as u8,
                    )*
                    lengths = in(reg) lengths,
                    options(att_syntax, readonly, nostack, preserves_flags)
                )
            }
        }
    };
}

/// Whether somebody traces the probe, as a `bool` that optimised code never makes: the asm jumps, and the jump is the
/// branch of the `if` around it. Two instructions, and none of them jumps while nobody traces.
#[doc(hidden)]
#[macro_export]
macro_rules! __is_enabled {
    ($provider:tt $name:tt) => {{
        #[inline(always)]
        #[allow(named_asm_labels)]
        fn __nopal_is_enabled() -> bool {
            // SAFETY: reads the probe's semaphore, which the same text defines, and touches nothing but the flags.
            unsafe {
                $crate::__private::asm!(
                    $crate::__semaphore!(guarded $provider $name),
                    concat!("cmpw $0, ", $crate::__semaphore_symbol!($provider $name), "(%rip)"),
                    "jne {enabled}",
                    enabled = label {
                        $crate::__private::cold_path();
                        return true;
                    },
                    options(att_syntax, readonly, nostack)
                )
            }
            false
        }
        __nopal_is_enabled()
    }};
}
