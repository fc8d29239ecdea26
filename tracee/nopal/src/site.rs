//! The notes of a site as assembler text, the same for every instruction set, and the way from a list of arguments to
//! the site's definition.

/// Defines the function `$fire`, which takes the arguments and is a site of the probe.
///
/// `$guard` is `guarded` (the note names the semaphore) or `plain`; `$size` says how long the description may be; an
/// argument comes as `[name, type, docs, labels]`.
#[doc(hidden)]
#[macro_export]
macro_rules! __fire {
    ($fire:ident $guard:ident $size:ident $provider:tt $name:tt $description:tt [$($arg:tt)*]) => {
        $crate::__fire! {
            @zip [$fire $guard $size $provider $name $description] [] [$($arg)*]
            [
                (A0 a0 narrow0 wide0 length0 size0 has_length0 is_wide0 0 "")
                (A1 a1 narrow1 wide1 length1 size1 has_length1 is_wide1 8 " ")
                (A2 a2 narrow2 wide2 length2 size2 has_length2 is_wide2 16 " ")
                (A3 a3 narrow3 wide3 length3 size3 has_length3 is_wide3 24 " ")
                (A4 a4 narrow4 wide4 length4 size4 has_length4 is_wide4 32 " ")
                (A5 a5 narrow5 wide5 length5 size5 has_length5 is_wide5 40 " ")
                (A6 a6 narrow6 wide6 length6 size6 has_length6 is_wide6 48 " ")
                (A7 a7 narrow7 wide7 length7 size7 has_length7 is_wide7 56 " ")
                (A8 a8 narrow8 wide8 length8 size8 has_length8 is_wide8 64 " ")
                (A9 a9 narrow9 wide9 length9 size9 has_length9 is_wide9 72 " ")
                (A10 a10 narrow10 wide10 length10 size10 has_length10 is_wide10 80 " ")
                (A11 a11 narrow11 wide11 length11 size11 has_length11 is_wide11 88 " ")
            ]
        }
    };

    // Each argument gets a slot: the names of its type, its value and its operands, its place among the lengths in
    // bytes, and what stands before its operand.
    (@zip $site:tt [$($done:tt)*] [$arg:tt $($args:tt)*] [$slot:tt $($slots:tt)*]) => {
        $crate::__fire!(@zip $site [$($done)* {$slot $arg}] [$($args)*] [$($slots)*]);
    };
    (@zip $site:tt $done:tt [$arg:tt $($args:tt)*] []) => {
        compile_error!("a probe has at most 12 arguments");
    };
    // From five arguments on there are not enough registers for every word of each.
    (@zip $site:tt [$a:tt $b:tt $c:tt $d:tt $e:tt $($more:tt)*] [] $slots:tt) => {
        $crate::__fire!(@define block $site $a $b $c $d $e $($more)*);
    };
    (@zip $site:tt [$($args:tt)*] [] $slots:tt) => {
        $crate::__fire!(@define direct $site $($args)*);
    };

    (@define $how:ident [$fire:ident $guard:ident $size:ident $provider:tt $name:tt $description:tt]
        $({($A:ident $($slot:tt)*) $arg:tt})*
    ) => {
        $crate::__define_site! {
            $how $fire $guard $provider $name [$size $description [$($A)*] [$([$A $arg])*]]
            $(($A $($slot)*))*
        }
    };
}

/// The description of a probe, and the code that has it written. It depends on the types of the arguments, which in generic
/// code are known late.
#[doc(hidden)]
#[macro_export]
macro_rules! __describe {
    ($provider:tt $name:tt [$size:ident $description:tt $types:tt $args:tt]) => {
        $crate::__describe!(@const $provider $name $description $types $args);
        $crate::__private::$size::<$crate::__described!($types)>();
    };
    // Where no note is written: only the checks.
    (@check $provider:tt $name:tt [$size:ident $description:tt $types:tt $args:tt]) => {
        $crate::__describe!(@const $provider $name $description $types $args);
        const { _ = <$crate::__described!($types) as $crate::__private::Described>::NOTE };
    };
    (@const $provider:tt $name:tt [$doc:expr, $pair:expr, $log_level:expr] [$($A:ident)*]
        [$([$B:ident [$arg_name:expr, $arg_type:expr, $arg_doc:expr, $labels:expr]])*]
    ) => {
        struct Described<$($A),*>($crate::__private::PhantomData<($($A,)*)>);
        impl<$($A: $crate::Arg),*> $crate::__private::Described for Described<$($A),*> {
            const NOTE: &'static $crate::__private::Note = &$crate::__private::Note::new(
                &$crate::__private::Description {
                    provider: $crate::__text!($provider),
                    name: $crate::__text!($name),
                    doc: $doc,
                    pair: $pair,
                    log_level: $log_level,
                },
                &[$($crate::__private::ArgDescription::new::<$B>($arg_name, $arg_type, $arg_doc, $labels)),*],
            );
        }
    };
}

/// What `__describe!` described these types by.
#[doc(hidden)]
#[macro_export]
macro_rules! __described {
    ([$($A:ident)*]) => { Described::<$($A),*> };
}

/// The stapsdt note up to the operands. `?` puts it into the group of the function around it, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __stapsdt_begin {
    ($guard:ident $provider:tt $name:tt) => {
        concat!(
            ".pushsection .note.stapsdt, \"?\", %note\n",
            ".balign 4\n",
            ".long 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .quad 990b\n",
            ".quad _.stapsdt.base\n",
            ".quad ", $crate::__semaphore_address!($guard $provider $name), "\n",
            ".asciz \"", $crate::__text!($provider), "\"\n",
            ".asciz \"", $crate::__text!($name), "\"",
        )
    };
}

/// The rest of the stapsdt note, and the two things it refers to: the base, whose address undoes a later shift of the
/// file, and the semaphore. `R` keeps the base although no code refers to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __stapsdt_end {
    ($guard:ident $provider:tt $name:tt) => {
        concat!(
            ".byte 0\n",
            "994: .balign 4\n",
            ".popsection\n",
            ".ifndef _.stapsdt.base\n",
            ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat\n",
            ".weak _.stapsdt.base\n",
            ".hidden _.stapsdt.base\n",
            ".type _.stapsdt.base, %object\n",
            "_.stapsdt.base: .zero 1\n",
            ".size _.stapsdt.base, 1\n",
            ".popsection\n",
            ".endif\n",
            $crate::__semaphore!($guard $provider $name),
        )
    };
}

/// Defines the probe's semaphore: one in each linked file, whatever number of sites and object files.
#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore {
    (guarded $provider:tt $name:tt) => {
        concat!(
            ".ifndef ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".pushsection .probes, \"awG\", %progbits, ",
            $crate::__semaphore_symbol!($provider $name), ", comdat\n",
            ".balign 2\n",
            ".weak ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".hidden ", $crate::__semaphore_symbol!($provider $name), "\n",
            ".type ", $crate::__semaphore_symbol!($provider $name), ", %object\n",
            $crate::__semaphore_symbol!($provider $name), ": .zero 2\n",
            ".size ", $crate::__semaphore_symbol!($provider $name), ", 2\n",
            ".popsection\n",
            ".endif",
        )
    };
    (plain $provider:tt $name:tt) => { "" };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore_address {
    (guarded $provider:tt $name:tt) => { $crate::__semaphore_symbol!($provider $name) };
    (plain $provider:tt $name:tt) => { "0" };
}

/// The name that C programs of the same provider use, so that both share one semaphore.
#[doc(hidden)]
#[macro_export]
macro_rules! __semaphore_symbol {
    ($provider:tt $name:tt) => { $crate::__symbol!("" $provider "_" $name "_semaphore") };
}

/// A symbol in quotes, because names may have a `-`.
#[doc(hidden)]
#[macro_export]
macro_rules! __symbol {
    ($before:literal $provider:tt $between:literal $name:tt $($after:literal)?) => {
        concat!("\"", $before, $crate::__text!($provider), $between, $crate::__text!($name), $($after,)? "\"")
    };
}

/// A name written as `redis` or as `"redis"`.
#[doc(hidden)]
#[macro_export]
macro_rules! __text {
    ($text:literal) => {
        $text
    };
    ($text:ident) => {
        stringify!($text)
    };
}
